package engine_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into testdata/*.txt")

// protocol runs one file of testdata on testdata/fabric: a command with its input, a
// line of four dashes, and what happens until the next.
type protocol struct {
	*world
	t     *testing.T
	begin time.Time
	subs  map[string]*engine.Subnet
	stops map[string]func()
	names *strings.Replacer // of GUIDs

	mu     sync.Mutex
	events []happened
	during map[string]func() // what to do when an SMP is about to be sent, by its name
}

// happened is an entry of a trace: a Get, or something with a line of its own.
type happened struct {
	at   time.Duration
	who  string
	get  string // attribute
	set  string // the SMP of a stage, counted while it repeats
	line string
	// order is -1 for what is received: the goroutine that receives and the
	// manager's own have no order of theirs within an instant.
	order int
}

func TestScripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) < 8 {
		t.Fatalf("%d scripts", len(files))
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			b := testkit.ReadFile(t, name)
			var got string
			synctest.Test(t, func(t *testing.T) { got = runScript(t, string(b)) })
			switch {
			case *rewrite:
				testkit.WriteFile(t, name, got)
			case got != string(b):
				t.Errorf("%s is not what happens (go test ./sm/engine -run Scripts -rewrite writes it):\n%s", name, diffLines(string(b), got))
			}
		})
	}
}

// diffLines shows the first lines that differ, with one before.
func diffLines(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	cut := func(l []string) string { return strings.Join(l[max(0, i-1):min(len(l), i+8)], "\n") }
	return fmt.Sprintf("line %d, the file has\n%s\nand there is\n%s", i+1, cut(a), cut(b))
}

// runScript gives the script with what happens in place of what it says.
func runScript(t *testing.T, text string) string {
	s := &protocol{t: t, begin: time.Now(), subs: map[string]*engine.Subnet{}, stops: map[string]func(){}, during: map[string]func(){}}
	s.fabric()
	defer func() {
		for _, k := range slices.Sorted(maps.Keys(s.stops)) {
			s.stops[k]()
		}
		s.world.close()
	}()
	var out strings.Builder
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if l == "" || strings.HasPrefix(l, "#") {
			if i < len(lines)-1 {
				fmt.Fprintln(&out, l)
			}
			continue
		}
		var input []string
		fmt.Fprintln(&out, l)
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			fmt.Fprintln(&out, lines[i])
			input = append(input, lines[i])
		}
		for i++; i < len(lines) && lines[i] != ""; i++ { // what was expected
		}
		i--
		fmt.Fprintf(&out, "----\n%s", s.do(l, strings.Join(input, "\n")))
	}
	return out.String()
}

// do executes a command and gives its output.
func (s *protocol) do(line, input string) string {
	w := strings.Fields(line)
	arg := func(i int) string {
		if i < len(w) {
			return w[i]
		}
		s.t.Fatalf("%q: argument %d is missing", line, i)
		return ""
	}
	switch w[0] {
	case "start":
		s.start(arg(1), w[2:], input)
	case "up": // start without a trace of what other scripts show
		s.start(arg(1), w[2:], input)
		time.Sleep(time.Second)
		synctest.Wait()
		s.trace()
		return s.managers()
	case "stop":
		s.stops[arg(1)]()
		delete(s.stops, w[1])
	case "during":
		// during Set LFT: cut S1[1]
		when, what, _ := strings.Cut(strings.TrimPrefix(line, "during "), ": ")
		s.during[when] = func() { s.change(strings.Fields(what)) }
		return ""
	case "partitions":
		s.subs[arg(1)].SetPartitions(s.partitionsOf(input), "the partitions changed")
	case "resweep":
		s.subs[arg(1)].Resweep(false, "a person asks")
		time.Sleep(time.Second)
	case "run":
		d, err := time.ParseDuration(arg(1))
		testkit.NoError(s.t, err)
		time.Sleep(d)
	case "managers":
		return s.managers()
	case "ports":
		return s.ports()
	case "check":
		if err := s.check(s.port(arg(1)), s.subs[w[1]]); err != nil {
			return err.Error() + "\n"
		}
		return "every port is Active, with the LIDs and routes that reach it\n"
	default:
		s.change(w)
	}
	synctest.Wait()
	return s.trace()
}

// change does what a person does to nodes and cables.
func (s *protocol) change(w []string) {
	var err error
	end := func(i int) (ib.GUID, uint8) { p := &s.f.Ports[s.port(w[i])]; return s.f.Nodes[p.Node].GUID, p.Num }
	node := func(i int) ib.GUID { return s.f.Nodes[s.node(w[i])].GUID }
	switch w[0] {
	case "cut":
		g, n := end(1)
		p := s.port(w[1])
		s.cut[min(p, s.f.Ports[p].Peer)] = true
		err = s.sim.Cut(g, n)
	case "restore":
		g, n := end(1)
		p := s.port(w[1])
		delete(s.cut, min(p, s.f.Ports[p].Peer))
		err = s.sim.Restore(g, n)
	case "reboot":
		err = s.sim.Reboot(node(1))
	case "babble", "flap": // babble NODE or flap PORT, TIMES a second, for a time
		times, _ := strconv.ParseFloat(w[2], 64)
		long, _ := time.ParseDuration(w[3])
		for range int(long.Seconds() * times) {
			if w[0] == "flap" {
				g, n := end(1)
				err = s.sim.Flap(g, n)
			} else {
				err = s.sim.SetDescription(node(1), w[1])
			}
			time.Sleep(time.Duration(float64(time.Second) / times))
		}
	case "copy-guid": // copy-guid FROM TO
		g := node(1)
		err = s.sim.SetNodeInfo(node(2), func(n *mad.NodeInfo) { n.NodeGUID, n.SystemImageGUID = g, g })
	default:
		s.t.Fatalf("unknown command %q", w[0])
	}
	if err != nil {
		s.t.Fatalf("%v: %v", w, err)
	}
}

// fabric connects the nodes of testdata/fabric.
func (s *protocol) fabric() {
	text, err := os.Open("testdata/fabric")
	testkit.NoError(s.t, err)
	defer text.Close()
	f, err := fabric.ReadText("fabric", text)
	testkit.NoError(s.t, err)
	s.world = newWorld(s.t, f, simfabric.Options{Seed: 1, DelayMin: 20 * time.Microsecond, DelayMax: 21 * time.Microsecond})
	var pairs []string
	for i := range f.Nodes {
		for p := range f.Nodes[i].NumPorts + 1 {
			if at := f.Port(int32(i), p); at != fabric.None && f.Ports[at].GUID != 0 {
				pairs = append(pairs, f.Ports[at].GUID.String(), f.PortName(at))
			}
		}
		pairs = append(pairs, f.Nodes[i].GUID.String(), f.Nodes[i].Name())
	}
	s.names = strings.NewReplacer(pairs...)
}

// node finds a node by its name.
func (s *protocol) node(name string) int32 {
	i := slices.IndexFunc(s.f.Nodes, func(n fabric.Node) bool { return n.Name() == name })
	if i < 0 {
		s.t.Fatalf("no node %q", name)
	}
	return int32(i)
}

// port finds a port by name: S1[3], or H1 for port 1 of H1.
func (s *protocol) port(name string) int32 {
	n, rest, ok := strings.Cut(name, "[")
	num := 1
	if ok {
		num, _ = strconv.Atoi(strings.TrimSuffix(rest, "]"))
	}
	return s.f.Port(s.node(n), uint8(num))
}

func (s *protocol) partitionsOf(text string) partition.Config {
	if text == "" {
		return partition.Config{}
	}
	for i := range s.f.Nodes { // members by the name of their host
		if p := s.f.Port(int32(i), 1); s.f.Nodes[i].Switch == fabric.None && p != fabric.None {
			text = strings.ReplaceAll(text, s.f.Nodes[i].Name()+"=", s.f.Ports[p].GUID.String()+"=")
		}
	}
	cfg, err := partition.Parse("partitions.conf", []byte(text))
	testkit.NoError(s.t, err)
	return cfg
}

// start runs a manager on a host.
func (s *protocol) start(host string, opts []string, partitions string) {
	cfg := engine.Config{Log: slog.New(&traceLog{s: s, who: host}), Partitions: s.partitionsOf(partitions),
		Changed: func() func(*engine.Snapshot) {
			was := ""
			return func(x *engine.Snapshot) {
				if x.State != was {
					s.note(happened{who: host, line: "is " + x.State})
				}
				was = x.State
			}
		}()}
	for _, o := range opts {
		switch k, v, _ := strings.Cut(o, "="); k {
		case "priority":
			n, _ := strconv.Atoi(v)
			cfg.Priority = uint8(n)
		default:
			s.t.Fatalf("unknown option %q", o)
		}
	}
	s.subs[host], s.stops[host] = s.managerOn(s.port(host), cfg, func(tr transport.Transport) transport.Transport {
		return &traced{Transport: tr, s: s, who: host}
	})
}

// traced notes what a manager sends and which traps it gets.
type traced struct {
	transport.Transport
	s   *protocol
	who string
}

func (x *traced) Send(p *transport.Packet) error {
	if m := mad.MethodOf(&p.MAD); mad.ClassOf(&p.MAD).IsSMP() && (m == mad.MethodGet || m == mad.MethodSet) {
		e := happened{who: x.who, get: mad.AttrName(mad.ClassSubnDR, mad.AttrOf(&p.MAD))}
		if m == mad.MethodSet {
			e.get, e.set = "", "Set "+e.get+setTo(p)
			x.s.mu.Lock()
			do := x.s.during[e.set]
			delete(x.s.during, e.set)
			x.s.mu.Unlock()
			if do != nil {
				do()
			}
		}
		x.s.note(e)
	}
	return x.Transport.Send(p)
}

func (x *traced) Recv(ctx context.Context, b []transport.Packet) (int, error) {
	n, err := x.Transport.Recv(ctx, b)
	for i := range b[:n] {
		var v mad.Notice
		if p := &b[i]; p.Err == nil && mad.MethodOf(&p.MAD) == mad.MethodTrap && v.Decode(mad.SMPData(&p.MAD)[:]) == nil {
			x.s.note(happened{who: x.who, order: -1, line: fmt.Sprintf("receives trap %d of LID %v", v.TrapNumber, v.IssuerLID)})
		}
	}
	return n, err
}

// setTo is the part of a Set that a stage is about.
func setTo(p *transport.Packet) string {
	switch mad.AttrOf(&p.MAD) {
	case mad.AttrPortInfo:
		if i := mad.PortInfoOf(mad.SMPData(&p.MAD)); i.State() != 0 {
			return " " + i.State().String()
		}
	case mad.AttrSMInfo:
		return " " + []string{"", "Handover", "Acknowledge", "Disable", "Standby", "Discover"}[mad.ModOf(&p.MAD)]
	}
	return ""
}

func (s *protocol) note(e happened) {
	e.at = time.Since(s.begin)
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
}

// traceLog notes log lines without what differs from run to run.
type traceLog struct {
	slog.Handler
	s   *protocol
	who string
}

func (*traceLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (l *traceLog) WithAttrs([]slog.Attr) slog.Handler         { return l } // the port
func (l *traceLog) Handle(_ context.Context, r slog.Record) error {
	out := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "duration" && a.Key != "busiest_link_flows" && a.Key != "link_port" && a.Value.String() != "" {
			out += fmt.Sprintf(" %s=%s", a.Key, quoted(a.Value.String()))
		}
		return true
	})
	l.s.note(happened{who: l.who, line: l.s.names.Replace(out)})
	return nil
}

func quoted(s string) string {
	if strings.ContainsAny(s, " ") {
		return strconv.Quote(s)
	}
	return s
}

// trace prints what happened since the last time, by manager where it is at the
// same instant: SMPs with their number, Gets of a walk in one line.
func (s *protocol) trace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	slices.SortStableFunc(events, func(a, b happened) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		if a.who != b.who {
			return strings.Compare(a.who, b.who)
		}
		return a.order - b.order
	})
	var out strings.Builder
	gets := map[string]map[string]int{}
	sets := map[string]happened{}
	count := map[string]int{}
	flush := func(who string) {
		if g := gets[who]; len(g) > 0 {
			var list []string
			for _, a := range slices.Sorted(maps.Keys(g)) {
				list = append(list, fmt.Sprintf("%s %d", a, g[a]))
			}
			fmt.Fprintf(&out, "%s: Get %s\n", who, strings.Join(list, ", "))
		}
		if count[who] > 0 {
			fmt.Fprintf(&out, "%s: %s %d\n", who, sets[who].set, count[who])
		}
		gets[who], count[who] = map[string]int{}, 0
	}
	var all []string
	for i := 0; i < len(events); i++ {
		e, n := events[i], 1
		for e.line != "" && i+n < len(events) && events[i+n].line == e.line && events[i+n].who == e.who {
			n++
		}
		if n > 3 {
			e.line = fmt.Sprintf("%s, %d times", e.line, n)
			i += n - 1
		}
		if gets[e.who] == nil {
			gets[e.who] = map[string]int{}
			all = append(all, e.who)
		}
		switch {
		case e.get != "":
			if count[e.who] > 0 {
				flush(e.who)
			}
			gets[e.who][e.get]++
		case e.set != "":
			if len(gets[e.who]) > 0 || count[e.who] > 0 && sets[e.who].set != e.set {
				flush(e.who)
			}
			sets[e.who] = e
			count[e.who]++
		default:
			flush(e.who)
			fmt.Fprintf(&out, "%s: %s\n", e.who, e.line)
		}
	}
	slices.Sort(all)
	for _, who := range all {
		flush(who)
	}
	return out.String()
}

// managers prints what each manager is.
func (s *protocol) managers() string {
	var out strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.subs)) {
		if s.stops[k] == nil {
			continue
		}
		x := s.subs[k].Refresh()
		fmt.Fprintf(&out, "%s: %s", k, x.State)
		if x.Master != nil {
			fmt.Fprintf(&out, " of %s", s.names.Replace(x.Master.GUID.String()))
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// ports prints the end ports with their LIDs and P_Keys, as the hardware has them.
func (s *protocol) ports() string {
	var out strings.Builder
	lids := map[ib.LID]string{}
	for _, e := range s.f.EndPorts {
		p := &s.f.Ports[e]
		if i, err := s.sim.PortInfo(s.f.Nodes[p.Node].GUID, p.Num); err == nil && i.LID().IsUnicast() {
			lids[i.LID()] = s.f.PortName(e)
		}
	}
	for _, e := range s.f.EndPorts {
		p := &s.f.Ports[e]
		g := s.f.Nodes[p.Node].GUID
		i, err := s.sim.PortInfo(g, p.Num)
		if err != nil || p.Num != 0 && p.Peer == fabric.None {
			continue
		}
		fmt.Fprintf(&out, "%s: %v, LID %v", s.f.PortName(e), i.State(), i.LID())
		if sm := lids[i.MasterSMLID()]; sm != "" {
			fmt.Fprintf(&out, ", manager %s", sm)
		}
		if p.Num != 0 {
			keys, _ := s.sim.PKeys(g, p.Num)
			fmt.Fprintf(&out, ", P_Keys %v", slices.DeleteFunc(keys, func(k ib.PKey) bool { return k == 0 }))
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}
