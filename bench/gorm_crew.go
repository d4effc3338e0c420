package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// A crew is workers that stay for the whole case. In a slice of a few milliseconds each of many workers does a handful of
// calls, and a goroutine that starts for them spends a part of its time on growing its stack: more of it the deeper the
// calls go, which is no part of what they cost a service.
type crew []chan func()

func newCrew(e *Env, n int) crew {
	c := make(crew, n)
	var wg sync.WaitGroup
	for i := range c {
		jobs := make(chan func())
		c[i] = jobs
		wg.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	e.Cleanup(func() {
		for _, jobs := range c {
			close(jobs)
		}
		wg.Wait()
	})
	return c
}

// rate has the workers call do again and again for d and returns the calls a second of all of them.
func (c crew) rate(d time.Duration, do func() error) (float64, error) {
	var wg sync.WaitGroup
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	wg.Add(len(c))
	start := time.Now()
	for _, jobs := range c {
		jobs <- func() {
			defer wg.Done()
			for time.Since(start) < d && failed.Load() == nil {
				if err := do(); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				calls.Add(1)
			}
		}
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(calls.Load()) / time.Since(start).Seconds(), nil
}
