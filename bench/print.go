package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// printJSON writes one object a line.
func printJSON(w io.Writer, rows []Row) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// printTable writes a table for people.
func printTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tholdfast\tbaseline\t\tunit\tratio\ttarget\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Suite, r.Case, figure(r.Ours), r.Baseline, figure(r.Theirs), r.Unit, figure(r.Ratio), r.target(), r.verdict())
	}
	return t.Flush()
}

func (r Row) target() string {
	switch {
	case r.Target == 0:
		return ""
	case r.LowerIsBetter:
		return "<= " + figure(r.Target)
	}
	return ">= " + figure(r.Target)
}

func (r Row) verdict() string {
	if r.Met() {
		return ""
	}
	return "missed"
}

// figure prints three or four significant digits.
func figure(f float64) string {
	switch {
	case f >= 10000:
		return strconv.FormatFloat(f/1000, 'f', 1, 64) + "k"
	case f >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
