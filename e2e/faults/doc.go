// Package faults decides nothing: it holds the tests that kill, stop and cut
// onefold's real processes and their database, one case at a time.
package faults
