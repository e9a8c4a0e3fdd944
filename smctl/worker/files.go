package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/smctl"
)

// watch names the files whose changes count.
func (c *Controller) watch() {
	if c.cfg.Watch == nil {
		return
	}
	var paths []string
	for _, e := range c.table {
		for _, f := range e.port.Policy.Files() {
			if !slices.Contains(paths, f) {
				paths = append(paths, f)
			}
		}
	}
	slices.Sort(paths)
	if !slices.Equal(paths, c.watched) {
		c.watched = paths
		c.cfg.Watch(slices.Clone(paths))
	}
}

// check reads the files of a port's policy, to put them in force or to compare them.
func (c *Controller) check(ctx context.Context, g ib.GUID, e *entry, compare bool) {
	pol := e.port.Policy
	if c.cfg.Check == nil || len(pol.Files()) == 0 {
		e.files, e.filesOf, e.waiting = &smctl.Files{}, pol, nil
		return
	}
	if e.checks {
		e.recheck, e.recompare = e.recheck || !compare, e.recompare || compare
		return
	}
	e.checks = true
	former := e.given.Files
	if e.files != nil {
		former = e.files.Digest
	}
	go func() {
		// A file on a server that does not answer is a bad one.
		got := make(chan smctl.Files, 1)
		go func() { got <- c.cfg.Check(pol) }()
		f := smctl.Files{Problem: fmt.Sprintf("%s: cannot be read within %v", pol.Files()[0], checkTimeout)}
		select {
		case f = <-got:
		case <-time.After(checkTimeout):
			f.Digest = former // what is in them is not known to be another
		}
		c.send(ctx, event{guid: g, files: &f, of: pol, compare: compare})
	}()
}

// checked takes the files of a port's policy.
func (c *Controller) checked(ctx context.Context, e *entry, ev event) {
	e.checks = false
	switch {
	case !ev.compare:
		if p := ev.files.Problem; p != "" && (e.files == nil || e.files.Problem != p) {
			c.cfg.Log.Error("a file of the subnet manager's settings cannot be used", "port", e.port.String(), "problem", p)
		}
		e.files, e.filesOf, e.waiting = ev.files, ev.of, nil
	case e.files != nil && e.filesOf == ev.of:
		e.waiting = ev.of.Changed(e.files.Digest, ev.files.Digest)
	}
	if e.recheck || e.recompare {
		compare := !e.recheck // what is read again needs no comparison
		e.recheck, e.recompare = false, false
		c.check(ctx, ev.guid, e, compare)
	}
}

// wait publishes the files that wait for Reread.
func (c *Controller) wait() {
	if c.cfg.Waiting == nil {
		return
	}
	var all []string
	for _, e := range c.table {
		all = append(all, e.waiting...)
	}
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, c.waiting) {
		c.waiting = all
		c.cfg.Waiting(slices.Clone(all))
	}
}
