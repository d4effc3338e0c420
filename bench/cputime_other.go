//go:build !linux

package main

import "time"

var started = time.Now()

// threadTime returns the time of day, where that of a thread cannot be had.
func threadTime() time.Duration { return time.Since(started) }
