// Package contract decides whether two servers have one contract: it runs the
// same tests against onefold's own processes and against the server in memory
// that programs use in their tests (client/clienttest).
package contract
