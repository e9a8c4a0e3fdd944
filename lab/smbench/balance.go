package main

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/lab/simfabric/server"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
)

// engines are the routing engines of opensm that ibnetsm is compared with.
var engines = []string{"minhop", "updn", "ftree", "dfsssp", "nue", "lash"}

// balanceSample is what one manager's tables do on one fabric.
type balanceSample struct {
	Fabric, SM, Engine string
	route.Load
	Shift      float64
	ShiftWorst float64
	// Loop: the tables have a credit loop between hosts, on one lane, or on the lanes that
	// path records and the mappings in the switches give.
	Loop  bool
	Lanes int // that paths take between switches, with -lanes
	Bound float64
	// Err says why there are no tables, or that another engine made them.
	Err string `json:",omitempty"`
}

// benchBalance prints how evenly the tables of ibnetsm and of each engine of
// opensm spread the flows between hosts, and the loops in them.
func benchBalance(t *tools, o options) ([]balanceSample, error) {
	var cases []gen.Case
	for _, c := range gen.Balance() {
		if o.only.MatchString(c.Name) {
			cases = append(cases, c)
		}
	}
	if o.degraded > 0 {
		cases = nil
		for i := range uint64(o.degraded) {
			if c := gen.Degraded(o.seed + i); o.only.MatchString(c.Name) {
				cases = append(cases, c)
			}
		}
	}
	engines := engines
	if o.degraded > 0 {
		engines = []string{"minhop", "updn", "ftree", "dfsssp", "nue"}
	}
	if o.lanes > 1 {
		engines = []string{"dfsssp", "nue", "lash"}
	}
	if !slices.Contains(o.sms, "opensm") {
		engines = nil
	}
	for _, name := range o.names {
		f, err := fabricByName(name)
		if err != nil {
			return nil, err
		}
		cases = append(cases, gen.Case{Name: name, Fabric: f})
	}
	var all []balanceSample
	if o.lanes > 1 {
		fmt.Fprintf(out, "%d lanes, on: those used; ", o.lanes)
	}
	fmt.Fprintf(out, "flows over the busiest link, all pairs of hosts / share of the bandwidth in shifts; L: credit loop\n")
	fmt.Fprintf(out, "%-28s %6s  %-22s", "fabric", "bound", "ibnetsm")
	for _, e := range engines {
		fmt.Fprintf(out, " %-*s", o.width(), e)
	}
	fmt.Fprintln(out, " ratio")
	var ratios []float64
	for _, c := range cases {
		ours := balanceOnce(t, c, "ibnetsm", "", o.lanes)
		all = append(all, ours)
		fmt.Fprintf(out, "%-28s %6.0f  %-22s", c.Name, ours.Bound, ours.text())
		best := 0.0
		for _, e := range engines {
			s := balanceOnce(t, c, "opensm", e, o.lanes)
			all = append(all, s)
			fmt.Fprintf(out, " %-*s", o.width(), s.text())
			if s.Err == "" && !s.Loop && s.Lost == 0 && (best == 0 || s.Worst < best) {
				best = s.Worst
			}
		}
		if best > 0 {
			fmt.Fprintf(out, " %.2f", ours.Worst/best)
			ratios = append(ratios, ours.Worst/best)
		}
		fmt.Fprintln(out)
	}
	slices.Sort(ratios)
	if n := len(ratios); n > 1 {
		at := func(share float64) float64 { return ratios[int(share*float64(n-1))] }
		fmt.Fprintf(out, "ratio on %d fabrics: least %.2f, half %.2f, nine tenths %.2f, most %.2f; %d above 1.05\n", n, at(0), at(0.5),
			at(0.9), at(1), n-sort.Search(n, func(i int) bool { return ratios[i] > 1.05 }))
	}
	return all, nil
}

func (s balanceSample) text() string {
	if s.Err != "" {
		return "-"
	}
	text := fmt.Sprintf("%.0f/%.3f", s.Worst, s.Shift)
	if s.SM == "ibnetsm" {
		text = s.Engine + " " + text
	}
	if s.Lanes > 0 {
		text += fmt.Sprintf(" on %d", s.Lanes)
	}
	if s.Loop {
		text += " L"
	}
	if s.Lost > 0 {
		text += fmt.Sprintf(" lost %d", s.Lost)
	}
	return text
}

// width is that of a column for an engine.
func (o *options) width() int {
	if o.lanes > 1 {
		return 20
	}
	return 14
}

// balanceOnce lets a manager bring the subnet up and reads the tables out of the
// switches.
func balanceOnce(t *tools, c gen.Case, sm, engine string, lanes int) (s balanceSample) {
	s = balanceSample{Fabric: c.Name, SM: sm, Engine: engine, Lanes: lanes}
	if err := s.measure(t, c); err != nil {
		s.Err = err.Error()
	}
	return s
}

func (s *balanceSample) measure(t *tools, c gen.Case) error {
	f := c.Fabric.Clone()
	for i := range f.Nodes {
		f.Nodes[i].VendorID, f.Nodes[i].DeviceID = 0, 0
	}
	for i := range f.Ports {
		if p := &f.Ports[i].Info; s.Lanes > 1 {
			p.SetVLCap(qos.Code(s.Lanes))
			p.SetCapMask(p.CapMask() | mad.CapSLMapping) // opensm maps no levels where it is missing
		}
	}
	sim := simfabric.New(f, simfabric.Options{})
	defer sim.Close()
	dir, err := os.MkdirTemp("", "smbench-")
	if err != nil {
		return err
	}
	r := &rig{t: t, kind: "ibnetsim", dir: dir, sock: fmt.Sprintf("smbench%d-%d", os.Getpid(), rigs.Add(1))}
	defer r.stop()
	srv, err := server.Listen(sim, r.sock, nil)
	if err != nil {
		return err
	}
	defer srv.Close()
	var extra []string
	switch {
	case s.SM == "opensm":
		extra = []string{"-R", s.Engine}
		if s.Lanes > 1 {
			extra = append(extra, "-Q", "--nue_max_num_vls", strconv.Itoa(s.Lanes))
		}
	case s.Lanes > 1:
		extra = []string{"--qos"}
	}
	m, err := r.run(s.SM, f.Nodes[f.Ports[f.SMPort].Node].Desc, 10, false, extra...)
	if err != nil {
		return err
	}
	if _, err := m.waitUp(1, 2*time.Minute); err != nil {
		return err
	}
	log, _ := os.ReadFile(m.log)
	if s.SM == "opensm" {
		// opensm goes on with minhop where an engine does not fit.
		for l := range strings.SplitSeq(string(log), "\n") {
			if strings.Contains(l, "tables configured on all switches") && !strings.Contains(l, s.Engine+" tables") {
				return fmt.Errorf("opensm took another engine: %s", l)
			}
		}
	} else if _, after, ok := strings.Cut(string(log), "routing="); ok {
		s.Engine, _, _ = strings.Cut(strings.Fields(after)[0], "\n")
	}
	lids := map[ib.GUID]ib.LID{}
	for _, e := range sim.EndPorts() {
		lids[e.PortGUID] = e.LID
	}
	for _, e := range f.EndPorts {
		p := &f.Ports[e]
		p.LID = lids[p.GUID]
	}
	lft := make([][]uint8, len(f.Switches))
	hosts := make([][]uint8, len(f.Switches))
	for i := range f.Switches {
		_, table, _, err := sim.SwitchTables(f.Nodes[f.Switches[i].Node].GUID)
		if err != nil {
			return err
		}
		lft[i], hosts[i] = table, slices.Clone(table)
	}
	for _, e := range f.EndPorts {
		if p := &f.Ports[e]; f.Nodes[p.Node].Type == ib.NodeSwitch && p.LID != 0 {
			for _, row := range hosts {
				if int(p.LID) < len(row) {
					row[p.LID] = route.NoPort
				}
			}
		}
	}
	s.Load = route.Measure(f, lft)
	s.Shift, s.ShiftWorst = route.Shift(f, lft)
	if s.Lanes > 1 {
		paths, err := readPaths(sim, f)
		if err != nil {
			return err
		}
		if s.Lanes, s.Loop, err = lanes(sim, f, lft, paths); err != nil {
			return err
		}
	} else {
		s.Loop = route.CreditLoop(f, hosts, nil) != nil
	}
	if b, err := route.Build(f, route.Options{}); err == nil {
		s.Bound = b.Bound
	}
	return nil
}
