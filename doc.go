// Package onefold is empty: it holds the test of the architecture. The programs
// are in cmd/, the Go client is in client/.
package onefold
