// Package canon decides when two requests are the same request.
//
// Everything that answers that question stands here: what counts as one
// well-formed JSON value ([Check], [Members]), its one canonical spelling
// ([Canonical]), the hash over that spelling ([Fingerprint], [InputHash],
// [Sum]), the places at which two payloads differ ([Diff]), and the grammar of
// idempotency keys ([Key], [CheckKey]).
//
// The scanner is our own because encoding/json keeps the last of two equal
// member names, matches names by Unicode folding, rounds numbers to float64
// and replaces ill-formed Unicode; each of these makes two different requests
// look equal, or one request look like two. It reads its input once, in time
// linear in its length (sorting member names apart), never recurses deeper
// than [MaxDepth] + 1, and works in recycled buffers.
//
// # Canonical form
//
//   - No white space.
//   - Object members sorted by name, by code point, at every depth; arrays in
//     the order given.
//   - Numbers as sign, digits without leading or trailing zeros, and a decimal
//     exponent where it is not zero: 1, 1.0 and 10E-1 are 1; 1500 is 15e2; 0.5
//     is 5e-1; -0 is 0.
//   - Strings in UTF-8 with only the quotation mark, the backslash and the
//     control characters escaped: \" \\ \b \t \n \f \r, else \u00xx in lower
//     case. No case folding, no Unicode normalisation.
//
// The canonical form is compared and hashed; it is never stored in place of
// what a caller sent.
package canon
