package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stores"
)

// errNotClean is the verdict that makes the command fail.
var errNotClean = errors.New("flashsale: the checker does not agree with the table: see above")

type tableConfig struct {
	buyers, stock int
	duration      time.Duration
	users         userMode
	modes         string
	seed          uint64
	json          bool
}

// row is what a way did under load. Times are in milliseconds.
type row struct {
	Mode       string  `json:"mode"`
	Requests   int     `json:"requests"`
	Successes  int     `json:"successes"`
	FinalStock int64   `json:"final_stock"`
	Duplicates int64   `json:"duplicates"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	RPS        float64 `json:"rps"`
	Clean      bool    `json:"clean"`

	notes []string
}

func runTable(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	fs := flag.NewFlagSet("flashsale table", flag.ContinueOnError)
	servers := stores.Flags(fs)
	var c tableConfig
	fs.IntVar(&c.buyers, "buyers", 500, "buyers at once, each with a connection of its own")
	fs.IntVar(&c.stock, "stock", 200, "units on sale in each row")
	fs.DurationVar(&c.duration, "duration", 5*time.Second, "how long buyers send new requests in each row")
	c.users = distinct
	fs.Var(&c.users, "users", "who buys, and how clients retry: `distinct`, one, zipf, same-id or new-id; with \"one\" the limit is measured instead of the deduction")
	fs.StringVar(&c.modes, "modes", strings.Join(usualModes, ","), "the `rows`, or \"all\": also version, decr, tokens, segments, lock+script+dedup and script+landing")
	fs.Uint64Var(&c.seed, "seed", 1, "start of the random users: the same seed plans the same requests")
	fs.BoolVar(&c.json, "json", false, "print one JSON object a row")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || c.buyers < 1 || c.stock < 1 || c.duration <= 0 {
		return errors.New("table: buyers, stock and duration are positive, and there are no further arguments")
	}

	s, err := openStores(ctx, *servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	hall, err := newHall(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hall.stop()) }()
	if err := hall.pick(c.modes); err != nil {
		return err
	}
	bench, err := newBench(ctx, hall, c, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()

	rows, err := bench.run(ctx)
	if err != nil {
		return err
	}
	if c.json {
		err = printJSON(out, rows)
	} else {
		err = printTable(out, rows, c, servers.String())
	}
	return errors.Join(err, verdict(rows))
}

func printJSON(out io.Writer, rows []row) error {
	enc := json.NewEncoder(out)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func printTable(out io.Writer, rows []row, c tableConfig, where string) error {
	fmt.Fprintf(out, "%d buyers at once for %v, %d units, users: %s (%s, seed %d)\n\n", c.buyers, c.duration, c.stock, c.users.label(), where, c.seed)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\trequests\tsuccesses\tfinal stock\tduplicate orders\tp50\tp99\trequests/s\tverdict\t")
	for _, r := range rows {
		verdict := "clean"
		if !r.Clean {
			verdict = "GUILTY"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f ms\t%.1f ms\t%.0f\t%s\t\n",
			r.Mode, r.Requests, r.Successes, r.FinalStock, r.Duplicates, r.P50, r.P99, r.RPS, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		for _, note := range r.notes {
			fmt.Fprintf(out, "\n%s: %s", r.Mode, note)
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

// verdict is nil if the table shows what it must: the first row guilty, all others clean.
func verdict(rows []row) error {
	for _, r := range rows {
		if r.Clean == (r.Mode == "none") {
			return errNotClean
		}
	}
	return nil
}
