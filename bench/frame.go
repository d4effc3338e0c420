package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// A Suite is what one part of holdfast is measured by.
type Suite struct {
	Name  string
	About string
	Cases []Case
}

// A Case measures holdfast and what it is compared with side by side.
type Case struct {
	Name   string
	Claims []Claim

	// Start prepares servers, clients and subjects and returns what measures them all once. Its figures have the
	// names that the claims use.
	Start func(e *Env) Round
}

// A Round measures each subject once, for about d, one directly after the other: what disturbs the machine for longer
// than a round disturbs all of them.
type Round func(d time.Duration) (Figures, error)

// Figures are what one round has measured, by name.
type Figures map[string]float64

// holdfast is the name of our own figure.
const holdfast = "holdfast"

// A Claim is one comparison of a case: a line of the output.
type Claim struct {
	Figure        string  // ours; empty: "holdfast"
	Baseline      string  // the figure it is compared with
	Unit          string  // of both
	Target        float64 // least ratio of ours to the baseline; 0: shown only, no target
	LowerIsBetter bool    // the target is the greatest ratio

	Suffix string // of the case's name in the output, if it has several kinds of figures
}

// A Row is a claim with its figures. Ratio is Ours / Theirs.
type Row struct {
	Suite         string  `json:"suite"`
	Case          string  `json:"case"`
	Baseline      string  `json:"baseline"`
	Ratio         float64 `json:"ratio"`
	Target        float64 `json:"target,omitempty"`
	Ours          float64 `json:"ours"`
	Theirs        float64 `json:"theirs"`
	Unit          string  `json:"unit"`
	LowerIsBetter bool    `json:"lower_is_better,omitempty"`
}

// Met reports whether the row meets its target, as it is printed. A row without a target meets it.
func (r Row) Met() bool {
	switch {
	case r.Target == 0:
		return true
	case r.LowerIsBetter:
		return r.Ratio <= r.Target
	}
	return r.Ratio >= r.Target
}

// measure runs the case for that many rounds and returns a row for each of its claims. The first round only warms up.
func (c *Case) measure(suite string, e *Env, rounds int, d time.Duration) ([]Row, error) {
	round := c.Start(e)
	all := make([]Figures, 0, rounds)
	for n := range rounds + 1 {
		f, err := round(d)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", suite, c.Name, err)
		}
		if n > 0 {
			all = append(all, f)
		}
	}
	var rows []Row
	for _, claim := range c.Claims {
		row, err := claim.row(all)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", suite, c.Name, err)
		}
		row.Suite, row.Case = suite, c.Name+claim.Suffix
		rows = append(rows, row)
	}
	return rows, nil
}

// row is the round with the median ratio; of two middle ones the worse. The figures of one round belong together, so
// they are shown and not each its own median.
func (c Claim) row(rounds []Figures) (Row, error) {
	rows := make([]Row, 0, len(rounds))
	for _, f := range rounds {
		ours, ok := f[cmp.Or(c.Figure, holdfast)]
		theirs, ok2 := f[c.Baseline]
		if !ok || !ok2 || !positive(ours) || !positive(theirs) {
			return Row{}, fmt.Errorf("no figures for %q against %q in %v", cmp.Or(c.Figure, holdfast), c.Baseline, f)
		}
		rows = append(rows, Row{
			Baseline: c.Baseline, Ratio: round3(ours / theirs), Target: c.Target, Ours: round3(ours), Theirs: round3(theirs),
			Unit: c.Unit, LowerIsBetter: c.LowerIsBetter,
		})
	}
	if len(rows) == 0 {
		return Row{}, errors.New("no rounds")
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Ratio, b.Ratio) })
	if c.LowerIsBetter {
		return rows[len(rows)/2], nil
	}
	return rows[(len(rows)-1)/2], nil
}

func positive(f float64) bool { return f > 0 && !math.IsInf(f, 0) }

// round3 keeps about three digits behind the point of small figures and none of large ones.
func round3(f float64) float64 {
	if f >= 1000 {
		return math.Round(f)
	}
	return math.Round(f*1000) / 1000
}

// A Subject is one of the things compared.
type Subject struct {
	Name string
	Run  func(d time.Duration) (float64, error) // measures it for about d
}

// slice is for how long interleave measures a subject before it turns to the next one.
const slice = 25 * time.Millisecond

// interleave makes a round of subjects that each give one figure: the mean of many short slices, in which the subjects
// take turns, so that what else the machine does hits all of them alike. Their order is another each time: nobody always
// comes after the one that leaves the servers most to tidy up.
func interleave(subjects ...Subject) Round {
	return func(d time.Duration) (Figures, error) {
		f := Figures{}
		slices := max(1, int(d/slice))
		for range slices {
			for _, i := range rand.Perm(len(subjects)) {
				s := subjects[i]
				runtime.GC() // nobody pays for what another one has left
				v, err := s.Run(d / time.Duration(slices))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.Name, err)
				}
				f[s.Name] += v / float64(slices)
			}
		}
		return f, nil
	}
}

// inTurn is interleave for subjects that need the whole time in one piece.
func inTurn(subjects ...Subject) Round {
	return func(d time.Duration) (Figures, error) {
		f := Figures{}
		for _, s := range subjects {
			runtime.GC()
			v, err := s.Run(d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			f[s.Name] = v
		}
		return f, nil
	}
}
