// Package batch decides how a JSONL file becomes tasks and how their results
// become a JSONL file.
//
// A file is staged in chunks, each in one short transaction, and nothing of it
// runs before its last line is there (upload.go). Its lines are then handed over
// a few hundred at a time, so that a flood waits outside the queue; settled
// tasks are noted, and the batch ends when no line is open (run.go and the steps
// beside it). Every step is one transaction under the lock of the batch's row:
// any number of processes may take them, and one that dies leaves whole steps.
package batch
