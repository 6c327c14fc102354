//go:build !linux

package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads a clock that goes on while the machine is suspended; on macOS
// that is CLOCK_MONOTONIC.
func bootClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("worker: no CLOCK_MONOTONIC: " + err.Error())
	}
	return time.Duration(t.Nano())
}
