// Package e2e decides nothing: it holds the tests that judge onefold as a whole,
// over real api and worker processes (see package proc).
package e2e
