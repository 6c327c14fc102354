// Package wait decides when those who wait for tasks in one process look again.
//
// However many wait, they cost what one costs: one connection that listens for
// hints, and one query that reads what all of them wait for. Each registers
// first and is read then, so that a task that settles in between is not missed;
// what a lost hint leaves behind is found by the next round, two seconds later
// at most.
package wait
