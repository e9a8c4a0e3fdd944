// Package pkey applies a partition configuration to a fabric: the P_Key table of
// each port, the checks of the switches, and the groups of each partition. It is
// pure; the grammar of the configuration is ib/partition's.
package pkey

import (
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// PowerOn is the P_Key table that the architecture gives a port before anybody
// wrote to it: full membership of the default partition at index 0 (IBTA
// 10.9.1.2).
var PowerOn = []ib.PKey{ib.DefaultPKey}

// Plan is a configuration applied to a fabric.
type Plan struct {
	// Keys has the wanted table of each port, by index in Fabric.Ports; nil
	// where nothing needs to be written.
	Keys [][]ib.PKey
	// Members has the wanted table of each end port and each port that checks, by
	// index in Fabric.Ports, 0 where an entry is free; nil for other ports.
	Members [][]ib.PKey
	Groups  []partition.Precreated
	// Enforcement has what switch ports check, by index in Fabric.Ports; nil
	// where no port checks. See Enforce.
	Enforcement []mad.Enforcement
	Warnings    []string
}

// Tables applies a configuration to a fabric. have has the tables that were read,
// by index in Fabric.Ports; a port without one is assumed to be in the power-on
// state.
func Tables(f *fabric.Fabric, cfg partition.Config, have [][]ib.PKey) Plan {
	ports := make([]partition.Port, 0, len(f.EndPorts))
	for _, e := range f.EndPorts {
		p := &f.Ports[e]
		q := partition.Port{GUID: p.GUID, Type: f.Nodes[p.Node].Type}
		// Port 0 of a switch has no link of its own; a port that is not
		// linked limits no other.
		if p.Num != 0 && p.Known && p.Peer != fabric.None {
			q.MTU, q.Rate = p.Info.MTUCap(), f.LinkRate(e)
			if o := &f.Ports[p.Peer]; o.Known && o.Info.MTUCap().IsValid() {
				q.MTU = min(q.MTU, o.Info.MTUCap())
			}
		}
		ports = append(ports, q)
	}
	self := ib.GUID(0)
	if f.SMPort != fabric.None {
		self = f.Ports[f.SMPort].GUID
	}
	r := cfg.Resolve(ports, self)
	plan := Plan{Keys: make([][]ib.PKey, len(f.Ports)), Members: make([][]ib.PKey, len(f.Ports)), Groups: r.Groups}
	// A group's packets may cross any link between switches.
	between := betweenSwitches(f)
	for i := range plan.Groups {
		g := &plan.Groups[i]
		if between != 0 && (g.SlowMTU == 0 || between < g.SlowMTU) {
			g.SlowMTU = between
		}
		if g.AutoMTU && between != 0 {
			g.MTU = min(g.MTU, between)
		}
		if !g.AutoMTU && g.SlowMTU != 0 && g.SlowMTU < g.MTU {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("partition %v (%s): group %v has an MTU of %v bytes, but a member's link "+
				"carries %v: that member cannot join; lower mtu= or leave it out",
				g.PKey, g.Name, g.MGID, g.MTU, g.SlowMTU))
		}
		if !g.AutoRate && g.SlowRate != 0 && g.SlowRate.Less(g.Rate) {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("partition %v (%s): group %v has a rate of %v, but a member's link runs at "+
				"%v: that member cannot join; lower rate= or leave it out",
				g.PKey, g.Name, g.MGID, g.Rate, g.SlowRate))
		}
	}
	for _, e := range f.EndPorts {
		p := &f.Ports[e]
		want := r.Keys[p.GUID]
		had := PowerOn
		if int(e) < len(have) && have[e] != nil {
			had = have[e]
		}
		capacity := int(f.Nodes[p.Node].PKeyCap)
		if capacity == 0 {
			// Not a table to write, but every port works in the
			// default partition.
			capacity = 1
		}
		table, dropped := partition.Table(had, want, capacity)
		if len(dropped) > 0 {
			plan.Warnings = append(plan.Warnings, partition.ExplainDropped(p.GUID, capacity, dropped))
		}
		// Never nil, which would mean the keys at power-on.
		plan.Members[e] = trimZero(append([]ib.PKey{}, table...))
		if !slices.Equal(plan.Members[e], trimZero(had)) {
			plan.Keys[e] = table
		}
	}
	return plan
}

// betweenSwitches is the smallest MTU of the links between switches, 0 without
// any.
func betweenSwitches(f *fabric.Fabric) (m ib.MTU) {
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == fabric.None || f.Nodes[p.Node].Switch == fabric.None || f.Nodes[f.Ports[p.Peer].Node].Switch == fabric.None {
			continue
		}
		if c := p.Info.MTUCap(); p.Known && c.IsValid() && (m == 0 || c < m) {
			m = c
		}
	}
	return m
}

func trimZero(t []ib.PKey) []ib.PKey {
	for len(t) > 0 && t[len(t)-1] == 0 {
		t = t[:len(t)-1]
	}
	return t
}
