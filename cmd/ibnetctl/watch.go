package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/filewatch"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

const operStates = "missing, off, no-carrier, dormant, degraded-carrier, carrier, degraded, enslaved, routable"

// want is one link to wait for.
type want struct {
	link     string
	min, max units.OperState // range of states, "" for what its unit says
}

// goal is what wait-online waits for.
type goal struct {
	links      []want   // none for every link that is required
	all        want     // the range of every link that has none of its own
	ignore     []string // shell patterns of links that are not waited for where none is named
	ipv4, ipv6 bool     // addresses that every link must have, instead of what its unit says
	any        bool     // one link is enough
}

// parseRange reads [MIN][:MAX]; empty is no range.
func parseRange(s string) (w want, err error) {
	lo, hi, _ := strings.Cut(s, ":")
	w.min, w.max = units.OperState(lo), units.OperState(hi)
	for _, o := range []units.OperState{w.min, w.max} {
		if o != "" && o.Rank() < 0 {
			return w, fail(exitUsage, "%q is not an operational state (%s)", o, operStates)
		}
	}
	if w.min != "" || w.max != "" {
		w.min, w.max = cmp.Or(w.min, units.OperMissing), cmp.Or(w.max, units.OperRoutable)
	}
	if w.max.Rank() < w.min.Rank() {
		return w, fail(exitUsage, "%q: the minimum is above the maximum; the order is %s", s, operStates)
	}
	return w, nil
}

// parseWant reads LINK[:MIN[:MAX]].
func parseWant(s string) (want, error) {
	name, states, _ := strings.Cut(s, ":")
	if name == "" {
		return want{}, fail(exitUsage, "%q names no link", s)
	}
	w, err := parseRange(states)
	w.link = name
	return w, err
}

func (a *app) waitOnlineCmd() *cobra.Command {
	var g goal
	var ifaces []string
	var quiet, verbose bool
	var timeout *time.Duration
	var oper string
	c := &cobra.Command{
		Use: "wait-online [LINK[:MIN[:MAX]]...]", Short: "wait until all required links are online", Args: cobra.ArbitraryArgs,
		Long: `Waits until every link with RequiredForOnline=yes (the default of links that have
a unit) is in the operational state that its unit requires, or until the named
links are in the state or range of states given with them. If no unit requires a
link it returns at once.

An InfiniBand link is online when its port is Active, the broadcast group is
joined, its address is set and the port's GID table contains the GID of its
hardware address; a RoCE link when that table contains a GID of it. Whether a link
in another network namespace is online cannot be checked: it never is. At the
timeout the reason for each missing link is printed, and the exit status is 6.`,
		ValidArgsFunction: a.completeSeen,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("interface") && len(ifaces) == 0 {
				return fail(exitUsage, "--interface= names no link")
			}
			for _, s := range append(slices.Clone(ifaces), args...) {
				w, err := parseWant(s)
				if err != nil {
					return err
				}
				g.links = append(g.links, w)
			}
			for _, p := range g.ignore {
				if _, err := path.Match(p, ""); err != nil {
					return fail(exitUsage, "--ignore=%s is not a pattern: %v", p, err)
				}
			}
			var err error
			if g.all, err = parseRange(oper); err != nil {
				return err
			}
			ctx := cmd.Context()
			if *timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, *timeout)
				defer cancel()
			}
			shown := a.newProgress(verbose)
			if quiet {
				shown = nil
			}
			missing, err := a.waitOnline(ctx, g, shown)
			if a.json {
				if e := a.emit(answer.WaitOnline{Schema: answer.Schema, Online: err == nil, Missing: missing}); e != nil {
					return e
				}
			}
			switch {
			case err == nil:
				return nil
			case errors.Is(err, context.DeadlineExceeded):
				if !quiet && !a.json {
					for _, m := range missing {
						fmt.Fprintln(a.err, lacking(m))
					}
				}
				if errors.Is(err, errNotRunning) {
					return fail(exitTimeout, "not online after %v\nnext: %s", *timeout, startDaemon())
				}
				return fail(exitTimeout, "not online after %v", *timeout)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringSliceVarP(&ifaces, "interface", "i", nil, "wait for `LINK[:MIN[:MAX]]` (may be repeated)")
	f.StringSliceVar(&g.ignore, "ignore", nil, "do not wait for links that match `PATTERN`, unless links are named (may be repeated)")
	f.BoolVarP(&g.ipv4, "ipv4", "4", false, "each link needs an IPv4 address, regardless of its unit")
	f.BoolVarP(&g.ipv6, "ipv6", "6", false, "each link needs an IPv6 address; with -4 both")
	f.BoolVar(&g.any, "any", false, "one link is enough")
	f.BoolVarP(&quiet, "quiet", "q", false, "do not print what is missing")
	f.BoolVarP(&verbose, "verbose", "v", false, "print each change of the links that are waited for")
	timeout = timeoutFlag(c, 2*time.Minute, "give up after `TIME`; 0 for no limit")
	f.StringVarP(&oper, "operational-state", "o", "", "`MIN[:MAX]` operational state of links that have none of their own")
	_ = c.RegisterFlagCompletionFunc("interface", a.completeSeen)
	_ = c.RegisterFlagCompletionFunc("operational-state",
		cobra.FixedCompletions(strings.Split(operStates, ", "), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// waitOnline watches the daemon's report file: it works before there is a bus.
// What it waits for it shows in p, if that is not nil.
func (a *app) waitOnline(ctx context.Context, g goal, p *progress) ([]answer.Lacking, error) {
	var tick <-chan time.Time
	if p != nil {
		defer p.done()
		if d := p.interval(); d > 0 {
			t := time.NewTicker(d)
			defer t.Stop()
			tick = t.C
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir := a.path(stateDir)
	changed, err := watchReport(ctx, dir)
	if err != nil {
		return nil, err
	}
	for {
		var missing []answer.Lacking
		var online bool
		var none error
		if r, err := daemon.ReadReport(dir); err == nil {
			missing, online = judge(r, g, a.hasGID)
		} else {
			none = noReport()
			missing = []answer.Lacking{{Link: "ibnetworkd", Why: none.Error()}}
		}
		if online {
			return nil, nil
		}
		if p != nil {
			p.show(waitingFor(missing))
		}
		// The kernel fills GID tables beside everything else, and reports it to no one.
		var again <-chan time.Time
		if slices.ContainsFunc(missing, func(m answer.Lacking) bool { return m.Why == noGID }) {
			again = time.After(gidInterval)
		}
		select {
		case <-again:
		case <-tick:
		case <-ctx.Done():
			return missing, errors.Join(ctx.Err(), none)
		case <-changed:
		}
	}
}

// watchReport reports until ctx ends that the daemon's files in dir have changed.
func watchReport(ctx context.Context, dir string) (<-chan struct{}, error) {
	w, err := filewatch.New(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	w.Add(dir)
	go w.Run(ctx, func(fsnotify.Event) bool {
		w.Add(dir) // it comes with the daemon, and may go with it
		select {
		case changed <- struct{}{}:
		default:
		}
		return false
	}, nil)
	return changed, nil
}

// waitingFor is what is missing, in a line.
func waitingFor(missing []answer.Lacking) string {
	first := missing[0]
	switch n := len(missing) - 1; {
	case n > 0:
		return fmt.Sprintf("waiting for %s and %d more: %s", first.Link, n, first.Why)
	case namesLink(first):
		return "waiting: " + first.Why
	}
	return "waiting for " + lacking(first)
}

// namesLink reports whether the sentence names the link itself.
func namesLink(m answer.Lacking) bool {
	return about{words: []string{m.Link}}.chooses(answer.LogEntry{Message: m.Why})
}

// lacking is a link and what it lacks; the link is named once.
func lacking(m answer.Lacking) string {
	if namesLink(m) {
		return m.Why
	}
	return m.Link + ": " + m.Why
}

// noReport returns why nothing is known of any link.
func noReport() error {
	if running("ibnetworkd") {
		return errors.New("ibnetworkd has not reported yet")
	}
	return errNotRunning
}

// noGID is why a link whose state is right is not online, and gidInterval how
// often the table is read then.
const (
	noGID       = "the port's GID table has no GID of the link yet"
	gidInterval = 250 * time.Millisecond
)

// judge returns the links that are not online.
func judge(r link.Report, g goal, gid func(link.Status) bool) (missing []answer.Lacking, online bool) {
	wants := g.links
	if len(wants) == 0 {
		ignored := 0
		for _, l := range r.Links {
			switch {
			case !l.Required || l.State == link.StateUnmanaged:
			case slices.ContainsFunc(g.ignore, func(p string) bool { ok, _ := path.Match(p, l.Name); return ok }):
				ignored++
			default:
				wants = append(wants, want{link: l.Name})
			}
		}
		if len(wants) == 0 && (ignored > 0 || !r.Awaited) {
			return nil, true
		}
		if len(wants) == 0 {
			// Links that only come with their device are not there yet.
			return []answer.Lacking{{Link: "any link",
				Why: "no link is required for online yet: no unit matches one, or its device is missing"}}, false
		}
	}
	got := 0
	for _, w := range wants {
		if w.min == "" {
			w.min, w.max = g.all.min, g.all.max
		}
		i := slices.IndexFunc(r.Links, func(l link.Status) bool { return l.Name == w.link })
		if i < 0 && w.min == units.OperMissing {
			got++
			continue
		}
		if i < 0 {
			why := "no such link (yet)"
			if found := elsewhere(r.Links, w.link); len(found) > 0 {
				why = lacksElsewhere(found[0])
			}
			missing = append(missing, answer.Lacking{Link: w.link, Why: why})
			continue
		}
		switch why := g.lacks(&r.Links[i], w); {
		case why != "":
			missing = append(missing, answer.Lacking{Link: w.link, Why: why})
		case !gid(r.Links[i]):
			missing = append(missing, answer.Lacking{Link: w.link, Why: noGID})
		default:
			got++
		}
	}
	return missing, len(missing) == 0 || g.any && got > 0
}

// lacks is why a link is not as it is waited for, "" where it is.
func (g goal) lacks(l *link.Status, w want) string {
	ok := l.Online
	switch {
	case w.min != "":
		ok = l.Reaches(w.min, w.max, g.ipv4, g.ipv6)
	case g.ipv4 || g.ipv6:
		ok = l.State == link.StateConfigured && l.Reaches(l.RequiredMin, l.RequiredMax, g.ipv4, g.ipv6)
	}
	if ok {
		return ""
	}
	is := fmt.Sprintf("%s (%s)", l.Oper, l.State)
	if g.ipv4 || g.ipv6 {
		is += fmt.Sprintf(", IPv4 addresses %s, IPv6 addresses %s", l.IPv4State, l.IPv6State)
	}
	return cmp.Or(l.Reason().Text, is)
}

// hasGID reports whether the port's GID table has what the link needs to be
// reached: for IPoIB the GID that is in its hardware address, for RoCE one that
// belongs to the interface.
func (a *app) hasGID(l link.Status) bool {
	if l.IBDevice == "" || l.Port == 0 {
		return true
	}
	port := a.path(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", l.IBDevice, l.Port))
	dir, want := filepath.Join(port, "gid_attrs/ndevs"), func(text string) bool { return text == l.Name }
	if l.Kind == "ipoib" {
		addr, err := ib.ParseHWAddr(l.HWAddr)
		if err != nil {
			return true
		}
		gid := addr.GID()
		dir, want = filepath.Join(port, "gids"), func(text string) bool {
			g, err := ib.ParseGID(text)
			return err == nil && g == gid
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		// Empty entries of the attributes give an error.
		if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && want(strings.TrimSpace(string(b))) {
			return true
		}
	}
	return false
}
