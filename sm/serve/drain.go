package serve

import (
	"fmt"

	"ibnetworkd/ib"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// drain drains or undrains a switch of each subnet, by name or GUID; without a word it
// changes nothing. A GUID that no subnet knows is taken by all that are not master: it is
// used when they are.
func (m *Manager) drain(subs []*engine.Subnet, on bool, word string) []control.Drains {
	out := []control.Drains{}
	for _, s := range subs {
		x := s.Refresh()
		if x == nil {
			continue
		}
		r := control.Drains{Device: x.Device, Port: x.Port, State: x.State, Drained: x.Drained}
		guids, problem := named(x, on, word)
		if r.Problem = problem; len(guids) > 0 {
			add, remove := guids, []ib.GUID(nil)
			if !on {
				add, remove = nil, guids
			}
			if now, ok := s.Drain(add, remove); ok {
				r.Drained = now
			} else if x.State == mad.SMStandby.String() {
				r.Problem = "a standby has the drained switches of the master: run the command on the host of the master"
			} else {
				r.Problem = "too many switches are drained, or the manager ends"
			}
		}
		if r.Drained == nil {
			r.Drained = []control.Drain{}
		}
		out = append(out, r)
	}
	return out
}

// named is the switches that a word means for a subnet.
func named(x *engine.Snapshot, on bool, word string) ([]ib.GUID, string) {
	var all []ib.GUID
	for _, d := range x.Drained {
		if !on && d.Name != "" && d.Name == word {
			return []ib.GUID{d.GUID}, ""
		}
		all = append(all, d.GUID)
	}
	switch {
	case word == "":
		return nil, ""
	case !on && word == "all":
		return all, ""
	}
	g, err := ib.ParseGUID(word)
	if err == nil && g != 0 && (x.Fabric == nil || !on) {
		return []ib.GUID{g}, ""
	}
	if x.Fabric == nil {
		return nil, "not the master, so only the GUID of a switch means something here"
	}
	nodes, err := explain.Nodes(x.Fabric, word)
	if err != nil {
		return nil, err.Error()
	}
	var out []ib.GUID
	for _, n := range nodes {
		if x.Fabric.Nodes[n].Switch == fabric.None {
			return nil, fmt.Sprintf("%s is not a switch; routes do not pass through adapters", x.Fabric.Nodes[n].Name())
		}
		out = append(out, x.Fabric.Nodes[n].GUID)
	}
	if len(out) > 1 {
		return nil, fmt.Sprintf("%q means %d switches; name one by its GUID", ib.Clip(word), len(out))
	}
	return out, ""
}
