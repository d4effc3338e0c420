package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns for how long the calling thread has computed: what else the machine does is not in it.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every kernel has that clock
	}
	return time.Duration(t.Nano())
}
