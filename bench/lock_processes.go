package main

import (
	"fmt"
	"time"
)

const (
	processes = 4
	perChild  = 16 // workers of each process

	hotChildName = "hot"
)

// fourProcesses has the workers of four processes take turns on one key, against as many in one process with a mutex.
func fourProcesses() Case {
	const least, fair = "least share", "fair share"
	return Case{
		Name: fmt.Sprintf("processes-%d", processes),
		Claims: []Claim{
			{Baseline: mutexName, Unit: "acquired/s", Target: 0.88},
			{Suffix: "-share", Figure: least, Baseline: fair, Unit: "acquired", Target: 0.5},
		},
		Start: func(e *Env) Round {
			var children []*process
			for range processes {
				children = append(children, startChild(e, hotChildName, e.Redis().Addr()))
			}
			shares := Figures{}
			ours := func(d time.Duration) (float64, error) {
				runs, err := runAll[hotRun](children, d)
				if err != nil {
					return 0, err
				}
				total, fewest := 0, runs[0].Acquired
				for _, r := range runs {
					total += r.Acquired
					fewest = min(fewest, r.Acquired)
				}
				shares[least], shares[fair] = max(float64(fewest), 0.001), float64(total)/processes
				return float64(total) / d.Seconds(), nil
			}
			ideal := newMutex()
			rates := inTurn(
				Subject{holdfast, func(d time.Duration) (float64, error) { return ours(hotLasts * d) }},
				Subject{mutexName, func(d time.Duration) (float64, error) {
					r, err := hot(ideal, "hot", processes*perChild, hotLasts*d)
					return r.rate(hotLasts * d), err
				}},
			)
			return func(d time.Duration) (Figures, error) {
				f, err := rates(d)
				if err != nil {
					return nil, err
				}
				f[least], f[fair] = shares[least], shares[fair]
				return f, nil
			}
		},
	}
}

// hotChild is what each of the processes does.
func hotChild(e *Env, addr string) func(d time.Duration) (any, error) {
	l := newHoldfast(e, clientOf(e, addr))
	return func(d time.Duration) (any, error) { return hot(l, "hot", perChild, d) }
}
