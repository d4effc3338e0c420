package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows a bar for the row that runs, on a terminal only.
type progress struct {
	to   io.Writer
	stop chan struct{}
	over chan struct{}
}

func newProgress(to io.Writer) *progress {
	if f, ok := to.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{to: to}
	}
	return &progress{}
}

// row ends the bar of the row before and starts one for d.
func (p *progress) row(name string, d time.Duration) {
	p.done()
	if p.to == nil {
		return
	}
	p.stop, p.over = make(chan struct{}), make(chan struct{})
	bar := progressbar.NewOptions64(d.Milliseconds(),
		progressbar.OptionSetWriter(p.to), progressbar.OptionSetDescription(name),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	go func() {
		defer close(p.over)
		defer func() { _ = bar.Finish() }() // only draws
		start := time.Now()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = bar.Set64(min(time.Since(start), d).Milliseconds()) // only draws
			case <-p.stop:
				return
			}
		}
	}()
}

func (p *progress) done() {
	if p.stop != nil {
		close(p.stop)
		<-p.over
		p.stop = nil
	}
}
