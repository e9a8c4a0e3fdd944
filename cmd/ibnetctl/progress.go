package main

import (
	"fmt"
	"time"
)

// quietFor is how long a wait says nothing on a terminal.
const quietFor = time.Second

// progress shows what a command waits for: on a terminal in one line that
// changes, elsewhere with --verbose in a line for each change.
type progress struct {
	a       *app
	verbose bool
	begin   time.Time
	said    string
	shown   bool // a line is on the terminal
}

func (a *app) newProgress(verbose bool) *progress {
	return &progress{a: a, verbose: verbose, begin: time.Now()}
}

// interval is how often show is to be called where nothing changes, for the time
// in the line; 0 for never.
func (p *progress) interval() time.Duration {
	if p.verbose || p.a.json || p.a.errWidth == 0 {
		return 0
	}
	return time.Second
}

// show prints what is waited for now.
func (p *progress) show(text string) {
	switch {
	case p.a.json:
	case p.verbose:
		if text != p.said {
			fmt.Fprintf(p.a.err, "%6.1f s: %s\n", time.Since(p.begin).Seconds(), text)
		}
	case p.a.errWidth > 0 && time.Since(p.begin) >= quietFor:
		line := []rune(printable(fmt.Sprintf("%3.0f s: %s", time.Since(p.begin).Seconds(), text)))
		if len(line) >= p.a.errWidth {
			line = append(line[:p.a.errWidth-2], '…')
		}
		fmt.Fprintf(p.a.tty[1], "\r\x1b[K%s", string(line))
		p.shown = true
	}
	p.said = text
}

// during runs f and shows meanwhile what it is.
func (p *progress) during(text string, f func()) {
	p.show(text)
	every := p.interval()
	if every == 0 {
		f()
		return
	}
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-over:
			return
		case <-t.C:
			p.show(text)
		}
	}
}

// done removes the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.a.tty[1], "\r\x1b[K")
		p.shown = false
	}
}
