package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// lockSuite measures package lock against the two other Go libraries on go-redis, against its own scripts sent plainly,
// and against a mutex in one process, which no lock over a network can beat.
func lockSuite() Suite {
	return Suite{
		Name:  "lock",
		About: "acquire and release: distinct keys, one hot key, several processes",
		Cases: []Case{
			uncontended(),
			distinct(1, Claim{Baseline: plain, Target: 0.95}, Claim{Baseline: redsyncName}, Claim{Baseline: redislockName}),
			distinct(8, Claim{Baseline: plain, Target: 0.95}, Claim{Baseline: redsyncName}, Claim{Baseline: redislockName}),
			distinct(64, Claim{Baseline: plain, Target: 0.95}, Claim{Baseline: redsyncName, Target: 2}, Claim{Baseline: redislockName, Target: 1.8}),
			distinct(256, Claim{Baseline: plain, Target: 0.95}, Claim{Baseline: redsyncName, Target: 2.5}, Claim{Baseline: redislockName, Target: 2.2}),
			hotKey(64),
			hotCost(8),
			hotCost(500),
			fourProcesses(),
		},
	}
}

// uncontended counts what one acquire and one release cost where nobody else wants the key.
func uncontended() Case {
	const roundTrips, pair = "round trips", "one to acquire, one to release"
	return Case{
		Name:   "uncontended",
		Claims: []Claim{{Figure: roundTrips, Baseline: pair, Unit: "round trips/pair", Target: 1, LowerIsBetter: true}},
		Start: func(e *Env) Round {
			var sent trips
			l := newHoldfast(e, e.Client(&sent))
			return func(time.Duration) (Figures, error) {
				const pairs = 100
				before := sent.n.Load()
				for n := range pairs {
					if err := l.pair(context.Background(), "lock:"+strconv.Itoa(n)); err != nil {
						return nil, err
					}
				}
				return Figures{roundTrips: float64(sent.n.Load()-before) / pairs, pair: 2}, nil
			}
		},
	}
}

// distinct has n workers acquire and release keys of their own.
func distinct(n int, claims ...Claim) Case {
	for i := range claims {
		claims[i].Unit = "pairs/s"
	}
	return Case{
		Name:   fmt.Sprintf("distinct-%d", n),
		Claims: claims,
		Start: func(e *Env) Round {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprintf("item:%d", i)
			}
			return interleave(each(lockers(e), func(l locker, d time.Duration) (float64, error) {
				return rate(n, d, func(worker int) error { return l.pair(context.Background(), keys[worker]) })
			})...)
		},
	}
}

func each(ls []locker, run func(l locker, d time.Duration) (float64, error)) []Subject {
	var subjects []Subject
	for _, l := range ls {
		subjects = append(subjects, Subject{Name: l.name, Run: func(d time.Duration) (float64, error) { return run(l, d) }})
	}
	return subjects
}
