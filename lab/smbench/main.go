// Command bench compares ibnetsm with opensm: the same fabric, the same
// simulator, runs of both in turn, ratios at the end of each line.
//
//	go run ./lab/smbench up [-runs 3] [-sim ibnetsim|ibsim] [fabric ...]
//	go run ./lab/smbench sa [fabric]
//	go run ./lab/smbench events [-only 'cut|back'] [fabric]
//	go run ./lab/smbench balance [-lanes 8] [-only REGEXP | -degraded 100] [fabric ...]
//	go run ./lab/smbench routes [-runs 3] [ft3-46848]
//	go run ./lab/smbench scale [ft3-46848]
//	go run ./lab/smbench storm [ft3-46848]
//	go run ./lab/smbench topo FABRIC
//	go run ./lab/smbench capture > sm/mad/testdata/golden.txt
//	go run ./lab/smbench conformance [-sm opensm|ibnetsm]
//
// A fabric is a name of the table (ft3-972) or a file in ibnetdiscover's form.
// Only runs next to each other on one machine compare: other work on it moves
// both. CPU seconds move least, SMP counts not at all.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var out io.Writer = os.Stdout

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("what? up, sa, events, balance, routes, scale, storm, conformance or topo")
	}
	fs := flag.NewFlagSet(args[0], flag.ExitOnError)
	runs := fs.Int("runs", 3, "runs of each")
	sim := fs.String("sim", "ibnetsim", "simulator: ibnetsim (ours) or ibsim (the reference)")
	sms := fs.String("sm", "opensm,ibnetsm", "subnet managers")
	js := fs.String("json", "", "write the measurements to this file")
	dir := fs.String("out", "", "keep the tools' output in this folder (conformance)")
	only := fs.String("only", "", "tests or events whose name matches (conformance, events; of fabrics: balance)")
	window := fs.Int("window", 0, "SMPs under way at one time, both managers; 0: each one's own default")
	degraded := fs.Int("degraded", 0, "this many degraded fabrics (gen.Degraded) in place of those of the table (balance)")
	seed := fs.Uint64("seed", 0, "the first of them")
	lanes := fs.Int("lanes", 0, "virtual lanes of each link that the managers may use for routes, 2 to 15; 0: one (balance)")
	_ = fs.Parse(args[1:])
	if args[0] == "topo" {
		f, err := fabricByName(fs.Arg(0))
		if err != nil {
			return err
		}
		return fabric.WriteText(out, f)
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	o := options{runs: *runs, sim: *sim, sms: strings.Split(*sms, ","), names: fs.Args(), window: *window, only: re,
		degraded: *degraded, seed: *seed, lanes: *lanes}
	var t *tools
	if args[0] != "scale" && args[0] != "routes" {
		if t, err = prepare(); err != nil {
			return err
		}
	}
	var res any
	switch args[0] {
	case "scale":
		res, err = benchScale(o)
	case "up":
		res, err = benchUp(t, o)
	case "sa":
		res, err = benchSA(t, o)
	case "balance":
		res, err = benchBalance(t, o)
	case "routes":
		res, err = benchRoutes(o)
	case "storm":
		res, err = benchStorm(t, o)
	case "events":
		res, err = benchEvents(t, o)
	case "conformance":
		res, err = conformance(t, o, *dir, *only)
	case "capture":
		err = capture(t)
	default:
		err = fmt.Errorf("%q: up, sa, events, balance, routes, scale, storm, conformance or topo", args[0])
	}
	if *js != "" && res != nil {
		b, jerr := json.MarshalIndent(res, "", " ")
		if jerr == nil {
			jerr = os.WriteFile(*js, b, 0o644)
		}
		if err == nil {
			err = jerr
		}
	}
	return err
}

type options struct {
	runs   int
	sim    string
	sms    []string
	names  []string
	window int
	only   *regexp.Regexp

	degraded int // balance: how many fabrics of gen.Degraded
	seed     uint64
	lanes    int // balance: of each link
}

// sample is one run of one manager on one fabric.
type sample struct {
	Fabric, SM      string
	Up              time.Duration
	CPU, SimCPU     time.Duration
	RSS             int64
	SMPs            map[string]int
	Total           int
	Resweep         int
	ResweepDuration time.Duration
}

func (o options) extra(sm string) []string {
	switch {
	case o.window == 0:
		return nil
	case sm == "opensm":
		return []string{"-n", strconv.Itoa(o.window)}
	}
	return []string{"--window=" + strconv.Itoa(o.window)}
}

func benchUp(t *tools, o options) ([]sample, error) {
	if len(o.names) == 0 {
		for _, f := range fabrics {
			if f.name != "ft3-5184" {
				o.names = append(o.names, f.name)
			}
		}
	}
	var all []sample
	fmt.Fprintf(out, "start to all ports Active; simulator %s; %d runs, interleaved; times are minima; load average %s\n", o.sim,
		o.runs, load())
	fmt.Fprintf(out, "%-10s %-8s %9s %8s %8s %8s %8s %8s\n", "fabric", "manager", "up s", "CPU s", "sim s", "RSS MB", "SMPs", "resweep")
	for _, name := range o.names {
		best := map[string]sample{}
		for range o.runs {
			for _, sm := range o.sms {
				s, err := upOnce(t, o, sm, name)
				if err != nil {
					return all, fmt.Errorf("%s on %s: %w", sm, name, err)
				}
				all = append(all, s)
				b, ok := best[sm]
				if !ok {
					b = s
				}
				b.Up, b.CPU, b.RSS = min(b.Up, s.Up), min(b.CPU, s.CPU), min(b.RSS, s.RSS)
				b.SimCPU = min(b.SimCPU, s.SimCPU)
				best[sm] = b
			}
		}
		for _, sm := range o.sms {
			b := best[sm]
			if o.sim == "ibsim" {
				var err error
				if b.SMPs, b.Total, b.Resweep, err = countOnce(t, o, sm, name); err != nil {
					return all, fmt.Errorf("%s on %s: %w", sm, name, err)
				}
				best[sm] = b
				all = append(all, b)
			}
			fmt.Fprintf(out, "%-10s %-8s %9.3f %8.3f %8.3f %8.1f %8d %8d\n", name, sm, b.Up.Seconds(), b.CPU.Seconds(), b.SimCPU.Seconds(),
				float64(b.RSS)/(1<<20), b.Total, b.Resweep)
		}
		if a, b := best["opensm"], best["ibnetsm"]; a.Up > 0 && b.Up > 0 {
			fmt.Fprintf(out, "%-10s %-8s %9.2f %8.2f %8.2f %8.2f %8s %8s%s\n", name, "ratio", ratio(b.Up, a.Up), ratio(b.CPU, a.CPU),
				ratio(b.SimCPU, a.SimCPU),
				float64(b.RSS)/float64(a.RSS), fraction(b.Total, a.Total), fraction(b.Resweep, a.Resweep), behind(a, b))
		}
	}
	fmt.Fprintln(out, "\nSMPs of the first sweep by attribute")
	for _, name := range o.names {
		for _, sm := range o.sms {
			for _, s := range all {
				if s.Fabric == name && s.SM == sm && s.Total > 0 {
					fmt.Fprintf(out, "%-10s %-8s %s\n", name, sm, byAttribute(s.SMPs))
					break
				}
			}
		}
	}
	return all, nil
}

// behind returns in what ibnetsm (b) misses what it aims at beside opensm (a): a
// third of the time and of the CPU, less memory, 0.55 of the SMPs.
func behind(a, b sample) string {
	var l []string
	for _, x := range []struct {
		what string
		is   bool
	}{
		{"time", ratio(b.Up, a.Up) > 1./3}, {"CPU", ratio(b.CPU, a.CPU) > 1./3}, {"memory", b.RSS > a.RSS},
		{"SMPs", float64(b.Total) > 0.55*float64(a.Total)}, {"resweep", b.Resweep > a.Resweep},
	} {
		if x.is {
			l = append(l, x.what)
		}
	}
	if l == nil {
		return ""
	}
	return "  <- behind its aim: " + strings.Join(l, ", ")
}

func fraction(a, b int) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	l, _, _ := strings.Cut(string(b), " ")
	return l
}

func byAttribute(m map[string]int) string {
	var s []string
	for _, k := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return m[b] - m[a] }) {
		s = append(s, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(s, ", ")
}

var counterLine = regexp.MustCompile(`(?m)^(\S+)\s+get\s+(\d+)\s+set\s+(\d+)`)

// counters reads our simulator's counters.
func (r *rig) counters() (m map[string]int, total int) {
	m = map[string]int{}
	if r.kind != "ibnetsim" {
		return m, 0
	}
	for _, l := range counterLine.FindAllStringSubmatch(r.console("counters"), -1) {
		g, _ := strconv.Atoi(l[2])
		s, _ := strconv.Atoi(l[3])
		if g > 0 {
			m[l[1]+" Get"] = g
		}
		if s > 0 {
			m[l[1]+" Set"] = s
		}
		total += g + s
	}
	return m, total
}

// quiet waits until the simulator has seen no new SMP for a while.
func (r *rig) quiet() {
	last := -1
	for range 100 {
		_, n := r.counters()
		if n == last {
			return
		}
		last = n
		time.Sleep(100 * time.Millisecond)
	}
}

// packetLine is the line of ibsim -v for each SMP.
var packetLine = regexp.MustCompile(`packet \(attr 0x([0-9a-f]+)`)

// countOnce counts SMPs on the reference simulator, which prints each one: a run
// of its own, for printing takes time.
func countOnce(t *tools, o options, sm, name string) (m map[string]int, total, resweep int, err error) {
	r, err := t.start(o.sim, name, "-v")
	if err != nil {
		return nil, 0, 0, err
	}
	defer r.stop()
	p, err := r.run(sm, "", 5, false, o.extra(sm)...)
	if err != nil {
		return nil, 0, 0, err
	}
	if _, err := p.waitUp(1, 5*time.Minute); err != nil {
		return nil, 0, 0, err
	}
	count := func(from int) (int, int) {
		// On a loaded machine what was printed takes its time to get here.
		last := -1
		for range 100 {
			n := r.errs.len()
			if n == last {
				break
			}
			last = n
			time.Sleep(time.Second)
		}
		n := 0
		for _, l := range packetLine.FindAllStringSubmatch(r.errs.text(from), -1) {
			a, _ := strconv.ParseUint(l[1], 16, 16)
			m[mad.AttrName(mad.ClassSubnDR, mad.AttrID(a))]++
			n++
		}
		return n, r.errs.len()
	}
	m = map[string]int{}
	total, from := count(0)
	first := m
	m = map[string]int{}
	n := p.ups()
	p.signal(syscall.SIGHUP)
	if _, err := p.waitUp(n+1, time.Minute); err != nil {
		return first, total, 0, err
	}
	resweep, _ = count(from)
	return first, total, resweep, nil
}

func upOnce(t *tools, o options, sm, name string) (s sample, err error) {
	r, err := t.start(o.sim, name)
	if err != nil {
		return s, err
	}
	defer r.stop()
	sim0, _ := usage(r.cmd.Process.Pid)
	m, err := r.run(sm, "", 5, false, o.extra(sm)...)
	if err != nil {
		return s, err
	}
	at, err := m.waitUp(1, 5*time.Minute)
	if err != nil {
		return s, err
	}
	s = sample{Fabric: name, SM: sm, Up: at.Sub(m.begun)}
	s.CPU, s.RSS = usage(m.cmd.Process.Pid)
	sim1, _ := usage(r.cmd.Process.Pid)
	s.SimCPU = sim1 - sim0
	if o.sim != "ibnetsim" {
		return s, nil
	}
	r.quiet()
	s.SMPs, s.Total = r.counters()
	if a := r.console("active"); !strings.Contains(a, "true") {
		return s, fmt.Errorf("%s says the subnet is up, but not all ports are Active", sm)
	}
	r.console("reset")
	n := m.ups()
	begin := time.Now()
	m.signal(syscall.SIGHUP)
	at, err = m.waitUp(n+1, time.Minute)
	if err != nil {
		return s, fmt.Errorf("resweep: %w", err)
	}
	s.ResweepDuration = at.Sub(begin)
	r.quiet()
	_, s.Resweep = r.counters()
	return s, nil
}
