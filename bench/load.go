package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// rate has n workers call do again and again for d and returns the calls a second of all of them.
func rate(n int, d time.Duration, do func(worker int) error) (float64, error) {
	var wg sync.WaitGroup
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	for worker := range n {
		wg.Go(func() {
			own := int64(0)
			defer func() { calls.Add(own) }()
			for time.Since(start) < d && failed.Load() == nil {
				if err := do(worker); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				own++
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(calls.Load()) / time.Since(start).Seconds(), nil
}

// perCall is for what costs too little to be timed in one piece on a machine that does other things too: it calls the
// functions in turn, in slices of about a millisecond, for d each, and gives each the median of its slices in ns. It
// counts the time that the calling thread computes, its part of the garbage collection included.
func perCall(names []string, calls ...func()) Round {
	sizes := make([]int, len(calls))
	for i, call := range calls {
		sizes[i] = sliceSize(call)
	}
	return func(d time.Duration) (Figures, error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		times := make([][]float64, len(calls))
		for range max(3, int(d/time.Millisecond)) {
			for i, call := range calls {
				start := threadTime()
				for range sizes[i] {
					call()
				}
				times[i] = append(times[i], float64(threadTime()-start)/float64(sizes[i]))
			}
		}
		f := Figures{}
		for i, name := range names {
			f[name] = percentile(times[i], 0.5)
		}
		return f, nil
	}
}

// sliceSize returns how many calls take about a millisecond.
func sliceSize(call func()) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n := 1; ; n *= 2 {
		start := threadTime()
		for range n {
			call()
		}
		if threadTime()-start >= time.Millisecond {
			return n
		}
	}
}

// percentile sorts the values and returns the one at p, 0 for none.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(p*float64(len(values)-1))]
}
