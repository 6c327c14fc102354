// Package boot decides how a process of onefold starts and stops: its logger,
// its connections with their time limits, the checks without which the promises
// do not hold, and the order of a graceful stop.
package boot
