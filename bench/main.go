// Command bench measures holdfast side by side with what a service would use instead, on servers that it starts itself:
//
//	go run .                              all suites, as a table
//	go run . -suite lock -json            one suite, one JSON object a line
//	go run . -suite lock -case distinct   the cases whose name matches a regular expression
//
// The figures that count are the ratios. Each round measures all subjects of a case one directly after the other, the
// rounds follow each other, and the round with the median ratio is shown; so a machine that does other things too, or
// another one, gives other figures and much the same ratios.
//
// The exit code is 0 if every target was met or -json was given, 1 if one was missed, and 2 if something could not be
// measured.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// suites are all there are. A further one is a file that defines it, and its name here.
func suites() []Suite {
	return []Suite{lockSuite(), gormSuite(), dedupSuite(), stockSuite(), middlewareSuite()}
}

var errMissed = errors.New("a target was missed")

func main() {
	if child() {
		return
	}
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errMissed):
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(2)
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	suite := flags.String("suite", "", "suites to run, separated by commas; empty: all of them ("+strings.Join(suiteNames(), ", ")+")")
	match := flags.String("case", "", "regular expression for the names of the cases to run; empty: all")
	rounds := flags.Int("rounds", 5, "rounds of each case, at least 1; the figures to publish have at least 5")
	d := flags.Duration("time", 250*time.Millisecond, "for how long a round measures each subject")
	asJSON := flags.Bool("json", false, "print one JSON object a line instead of a table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-case: %w", err)
	}
	if *rounds < 1 || *d <= 0 || flags.NArg() > 0 {
		return fmt.Errorf("-rounds and -time must be positive, and there are no arguments: %q", flags.Args())
	}
	chosen, err := choose(*suite)
	if err != nil {
		return err
	}
	var rows []Row
	for _, s := range chosen {
		for _, c := range s.Cases {
			if !wanted.MatchString(c.Name) {
				continue
			}
			start := time.Now()
			more, err := standaloneCase(s.Name, c, *rounds, *d)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s/%s: %.1f s\n", s.Name, c.Name, time.Since(start).Seconds())
			rows = append(rows, more...)
			if *asJSON {
				if err := printJSON(stdout, more); err != nil {
					return err
				}
			}
		}
	}
	if *asJSON {
		return nil
	}
	if err := printTable(stdout, rows); err != nil {
		return err
	}
	for _, r := range rows {
		if !r.Met() {
			return errMissed
		}
	}
	return nil
}

// standaloneCase measures one case on servers of its own.
func standaloneCase(suite string, c Case, rounds int, d time.Duration) (rows []Row, err error) {
	s := &standalone{name: suite + "/" + c.Name}
	err = s.run(func() error {
		rows, err = c.measure(suite, &Env{TB: s}, rounds, d)
		return err
	})
	return rows, err
}

// choose returns the suites of a list of names, all for an empty one.
func choose(names string) ([]Suite, error) {
	var chosen []Suite
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, s := range suites() {
			if s.Name == name || names == "" {
				chosen = append(chosen, s)
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("no suite %q: there are %s", name, strings.Join(suiteNames(), ", "))
		}
	}
	return chosen, nil
}

func suiteNames() []string {
	var names []string
	for _, s := range suites() {
		names = append(names, s.Name)
	}
	return names
}
