package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads a clock that goes on while the machine is suspended: Go's
// monotonic clock stands still then, and a lease would look young.
func bootClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("worker: no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}
