package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
)

// history is what all processes did, in order.
type history struct {
	entries []entry
	killed  int // processes that ended by a signal
}

// spawn starts the processes and waits until all have ended.
func (s schedule) spawn(ctx context.Context, processes int) (*history, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.periods)*s.period*3+time.Minute) // far more than it takes
	defer cancel()
	var (
		h   history
		mu  sync.Mutex
		wg  sync.WaitGroup
		bad error
	)
	for n := range processes {
		wg.Go(func() {
			child := exec.CommandContext(ctx, program, s.args(n+1)...)
			child.Stderr = os.Stderr
			printed, err := child.Output()
			mu.Lock()
			defer mu.Unlock()
			var exit *exec.ExitError
			switch {
			case errors.As(err, &exit) && !exit.Exited() && ctx.Err() == nil:
				h.killed++
			case err != nil:
				bad = errors.Join(bad, fmt.Errorf("process %d: %w", n+1, err))
			}
			bad = errors.Join(bad, h.read(printed))
		})
	}
	wg.Wait()
	slices.SortFunc(h.entries, func(a, b entry) int { return a.Began.Compare(b.Began) })
	return &h, bad
}

func (h *history) read(printed []byte) error {
	for dec := json.NewDecoder(bytes.NewReader(printed)); dec.More(); {
		var e entry
		if err := dec.Decode(&e); err != nil {
			return err
		}
		h.entries = append(h.entries, e)
	}
	return nil
}

func (h *history) show(out io.Writer, s schedule, processes int) error {
	fmt.Fprintf(out, "%d processes, %d periods of %v\n\n", processes, s.periods, s.period)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "period\tprocess\tattempt\tbegan at\ttook\toutcome\t")
	for _, e := range h.entries {
		fmt.Fprintf(w, "%d\t%d\t%d\t%v\t%v\t%s\t\n", e.Period, e.Process, e.Attempt,
			e.Began.Sub(s.start).Round(time.Millisecond), e.Ended.Sub(e.Began).Round(time.Millisecond), e.Outcome)
	}
	return w.Flush()
}

// check judges by what the processes did.
func (h *history) check(s schedule) error {
	var must stores.Check
	runs, deaths, failures := map[int]int{}, 0, 0
	var last entry
	for _, e := range h.entries {
		switch e.Outcome {
		case died:
			deaths++
			continue
		case done:
			runs[e.Period]++
		case failed:
			failures++
		}
		begins := s.start.Add(time.Duration(e.Period) * s.period)
		must.Must(!e.Began.Before(begins), "period %d ran before it began", e.Period)
		must.Must(!e.Began.Before(last.Ended), "process %d began period %d while process %d was at period %d", e.Process, e.Period, last.Process, last.Period)
		last = e
	}
	for period := range s.periods {
		must.Must(runs[period] == 1, "period %d was done %d times", period, runs[period])
	}
	expected := func(period int) int {
		if period >= 0 && period < s.periods {
			return 1
		}
		return 0
	}
	must.Must(failures >= expected(s.fail), "no run failed, one should have")
	must.Must(deaths == expected(s.die) && h.killed == deaths, "%d processes died and %d were killed, want %d", deaths, h.killed, expected(s.die))
	return must.Err()
}
