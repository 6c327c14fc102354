// Package batchrun decides whether `onefold batch run` keeps its word: a file's
// lines come out once each and in order, whatever is killed on the way, and no
// process grows with the file.
//
//	ONEFOLD_BATCH_LINES=100000 go test ./e2e/batchrun -count=1 -v -timeout=1h
//
// says how many lines; 2,000 without it. The log has what each process took.
package batchrun
