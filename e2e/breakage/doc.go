// Package breakage decides whether onefold's promises survive its parts being
// killed, stopped and cut at any moment: TestBreak does that to real processes
// for BREAK_TIME and then checks every promise. `make break` runs it; BREAK_SEED
// repeats the order of one run.
package breakage
