// Package auth decides who is asking: API keys, what they allow, and the tenant
// they stand for.
//
// A key is the text of_<id>_<secret>. The id is public and names the key in
// logs; of the secret only the SHA-256 is stored. The tenant of a request comes
// from its key and from nothing else.
package auth
