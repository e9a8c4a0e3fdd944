package roce

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// A macvlan has nothing but its name: one in a network namespace is known by it, two are beside each other, and
// a VLAN of that name in its place is made after it was deleted.
func TestMACVLANElsewhere(t *testing.T) {
	s, st := system()
	s.Card, s.Namespaces = st, []link.Namespace{{Path: "/run/netns/job", ID: 3}}
	rec := &link.Record{}
	plan := func(text string) (ops []string) {
		b, u := link.NewBuilder(s, rec, nil), unit(t, text)
		PlanRemovals(b, func(i int) (*units.Unit, bool) { return u, i == 2 })
		Plan(b, 2, u)
		for _, x := range b.Plan.Steps {
			if m, sends := link.Sent(x.Op); sends {
				s.Moved = append(s.Moved, link.MovedLink{Made: m.Made, NSID: 3, Index: 20 + len(s.Moved), Up: true,
					VLAN: newVLAN(new(x.Op.(AddVLAN).VLAN))})
			} else if d, ok := x.Op.(link.DelMoved); ok {
				s.Moved = slices.DeleteFunc(s.Moved, func(x link.MovedLink) bool { return x.Made == d.Moved.Made })
			}
			rec.Done(x.Op)
			ops = append(ops, x.Op.String())
		}
		rec.Reconcile(s)
		return ops
	}
	const job = "NetworkNamespace=job\n"
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"[MACVLAN]\nName=a\n" + job + "[MACVLAN]\nName=b\nMode=bridge\n" + job, []string{
			"ip link add link eth0 name a netns job up type macvlan", "ip link add link eth0 name b netns job up type macvlan mode bridge"}},
		{"[MACVLAN]\nName=b\nMode=bridge\n" + job + "[MACVLAN]\nName=a\n" + job, nil},
		{"[MACVLAN]\nName=b\nMode=bridge\n" + job, []string{"ip -n job link delete a"}},
		{"[VLAN]\nId=7\nName=b\n" + job, []string{"ip -n job link delete b", "ip link add link eth0 name b netns job up type vlan id 7"}},
		{"[IPVLAN]\nName=b\n" + job, []string{"ip -n job link delete b",
			"ip link add link eth0 name b netns job up type ipvlan mode l2 bridge"}},
		{"", []string{"ip -n job link delete b"}},
	} {
		if diff := cmp.Diff(tt.want, plan(tt.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
}

// Beside a macvlan that another program moved on, or that was not seen yet, no other one is made under its name:
// the record has one of a name.
func TestMACVLANLost(t *testing.T) {
	for _, state := range []string{"moved on", "not seen"} {
		s, st := system()
		m := link.Moved{Made: link.Made{Kind: "macvlan", Name: "m", On: 2}, NSID: -1, Namespace: "/run/netns/job"}
		s.Card, s.Namespaces = st, []link.Namespace{{Path: "/run/netns/job", ID: 3}, {Path: "/run/netns/two", ID: 4}}
		if state == "moved on" {
			m.NSID, m.Index = 3, 20
			s.Moved = []link.MovedLink{{Made: m.Made, NSID: 3, Lost: &link.Lost{Path: "/run/netns/x", NSID: 5, Index: 8, Name: "m"}}}
		}
		for _, text := range []string{"[MACVLAN]\nName=m\n", "[MACVLAN]\nName=m\nNetworkNamespace=two\n"} {
			b, u := link.NewBuilder(s, &link.Record{Moved: []link.Moved{m}}, nil), unit(t, text)
			PlanRemovals(b, func(i int) (*units.Unit, bool) { return u, i == 2 })
			Plan(b, 2, u)
			if a := b.Attributes(2)[0]; len(b.Plan.Steps) != 0 || a.Why.Code != link.CodeMoved {
				t.Errorf("%s: %q: %v, %+v", state, text, b.Plan.Steps, a)
			}
		}
	}
}

// A VLAN with NetworkNamespace= waits for it, is made there, and made again where the unit
// or what exists changes; each edit takes one plan.
func TestVLANElsewhere(t *testing.T) {
	s, st := system()
	s.Card = st
	rec := &link.Record{}
	plan := func(text string) (ops []string, a link.Attribute) {
		t.Helper()
		var u *units.Unit
		if text != "none" {
			u = unit(t, text)
		}
		b := link.NewBuilder(s, rec, nil)
		PlanRemovals(b, func(i int) (*units.Unit, bool) { return u, i == 2 })
		if u != nil {
			Plan(b, 2, u)
		}
		for _, x := range b.Plan.Steps {
			rec.Intend(x.Op)
		}
		for _, x := range b.Plan.Steps {
			switch o := x.Op.(type) {
			case AddVLAN, DelVLAN:
				if m, sends := link.Sent(o); sends {
					v := o.(AddVLAN).VLAN
					n := link.Link{VLAN: &link.VLAN{ID: m.Tag.ID, Protocol: m.Tag.Protocol, Flags: link.VLANReorderHeader}}
					setVLAN(&n, &v)
					s.Moved = append(s.Moved[:0:0], link.MovedLink{Made: m.Made, NSID: s.Namespace(m.Namespace).ID, Index: 21, Up: true, VLAN: n.VLAN})
				} else {
					apply(t, s, st, nil, o)
				}
			case link.DelMoved:
				s.Moved = slices.DeleteFunc(s.Moved, func(x link.MovedLink) bool { return x.Made == o.Moved.Made })
			}
			rec.Done(x.Op)
			ops = append(ops, x.Op.String())
		}
		rec.Reconcile(s)
		for _, a = range b.Attributes(2) {
			if a.Name == "VLAN" {
				return ops, a
			}
		}
		return ops, link.Attribute{}
	}
	const vlan, job = "[VLAN]\nId=7\nName=v\n", "NetworkNamespace=job\n"
	var is link.MovedLink
	up := func(v bool) func() { return func() { s.Moved[0].Up = v } }
	for _, tt := range []struct {
		name   string
		before func()
		text   string
		want   []string
		actual string
		code   link.Code
		next   string
	}{
		{name: "bad waits", text: vlan + job, code: link.CodeNoNamespace, next: "ip netns add job"},
		{name: "bad namespace of the daemon", before: func() { s.Namespaces = []link.Namespace{{Path: "/proc/1/ns/net", ID: -1, Own: true}} },
			text: vlan + "NetworkNamespace=/proc/1/ns/net\n", code: link.CodeNoNamespace, next: "remove NetworkNamespace=, or write another one"},
		{name: "OK made", before: func() { s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: 3}, {Path: "/x", ID: 4}} },
			text: vlan + job + "EgressQOSMaps=3-3\n",
			want: []string{"ip link add link eth0 name v netns job up type vlan id 7 egress-qos-map 3:3"}},
		{name: "OK there", text: vlan + job + "EgressQOSMaps=3-3\n", actual: "v id 7 egress-qos-map 3:3 in network namespace job"},
		{name: "bad other maps", text: vlan + job + "EgressQOSMaps=5-5\n", actual: "v id 7 egress-qos-map 3:3 in network namespace job",
			code: link.CodeMoved, next: "to make it again: ip -n job link delete v; ibnetctl reconfigure eth0"},
		{name: "bad down", before: up(false), text: vlan + job, actual: "v id 7 in network namespace job", code: link.CodeLinkDown,
			next: "ip -n job link set v up"},
		{name: "bad down with its parent", before: func() { s.Links[0].Flags = 0 }, text: vlan + job,
			actual: "v id 7 in network namespace job", code: link.CodeLinkDown, next: "ip link set eth0 up"},
		{name: "OK another number", before: up(true), text: strings.Replace(vlan, "7", "8", 1) + job,
			want: []string{"ip -n job link delete v", "ip link add link eth0 name v netns job up type vlan id 8"}},
		{name: "OK renamed", before: func() { s.Moved[0].Called = "eth0" }, text: strings.Replace(vlan, "7", "8", 1) + job,
			actual: "v id 8 in network namespace job, where its name is eth0"},
		{name: "bad renamed, other maps", text: strings.Replace(vlan, "7", "8", 1) + job + "EgressQOSMaps=5-5\n", code: link.CodeMoved,
			actual: "v id 8 in network namespace job, where its name is eth0",
			next:   "to make it again: ip -n job link delete eth0; ibnetctl reconfigure eth0"},
		{name: "bad moved on", before: func() {
			is = s.Moved[0]
			s.Moved[0].Index, s.Moved[0].Lost = 0, &link.Lost{NSID: 4, Path: "/x", Index: 3}
		},
			text: strings.Replace(vlan, "7", "8", 1) + job, code: link.CodeMoved,
			next: "nsenter --net=/x ip link set v netns job; to have it made again, delete it there"},
		{name: "OK moved back", before: func() { s.Moved[0] = is }, text: strings.Replace(vlan, "7", "8", 1) + job,
			actual: "v id 8 in network namespace job, where its name is eth0"},
		{name: "OK another namespace", before: func() { s.Moved[0].Called = "" }, text: vlan + "NetworkNamespace=/x\n",
			want: []string{"ip -n job link delete v", "ip link add link eth0 name v netns /x up type vlan id 7"}},
		{name: "OK deleted there", before: func() { s.Moved[0].Index = 0 }, text: vlan + "NetworkNamespace=/x\n",
			want: []string{"ip link add link eth0 name v netns /x up type vlan id 7"}},
		{name: "bad namespace of another process", before: func() { s.Namespaces[1].ID = 9 }, text: vlan + "NetworkNamespace=/x\n",
			code: link.CodeMoved, next: "end the processes in it (lsns --type=net); the link is then made again"},
		{name: "bad deleted with its namespace", before: func() { s.Moved, s.Namespaces = nil, s.Namespaces[:1] },
			text: vlan + "NetworkNamespace=/x\n", code: link.CodeMoved},
		{name: "OK known to be deleted", before: func() {
			s.Moved = []link.MovedLink{{Made: link.Made{Kind: "vlan", Name: "v", On: 2}, NSID: 4}}
			rec.Reconcile(s)
			s.Moved = nil
		}, text: vlan + job, want: []string{"ip link add link eth0 name v netns job up type vlan id 7"}},
		{name: "OK here", text: vlan, want: []string{"ip -n job link delete v", "ip link add link eth0 name v type vlan id 7"}},
		{name: "OK there again", text: vlan + job,
			want: []string{"ip link delete v", "ip link add link eth0 name v netns job up type vlan id 7"}},
		{name: "OK unit gone", text: "none", want: []string{"ip -n job link delete v"}},
		{name: "bad of another program", before: func() {
			s.Links = append(s.Links, link.Link{Index: 9, Name: "v", Kind: "vlan", Type: 1, Parent: 2, VLAN: &link.VLAN{ID: 7}})
		}, text: vlan + job, actual: "v id 7", code: link.CodeNameTaken, next: "ip link delete v, or ip link set v netns job"},
	} {
		if tt.before != nil {
			tt.before()
			rec.Reconcile(s)
		}
		ops, a := plan(tt.text)
		diff := cmp.Diff(tt.want, ops)
		if diff != "" || a.Actual != tt.actual && tt.actual != "" || a.Why.Code != tt.code || a.Why.Next != tt.next {
			t.Errorf("%s: %+v (-want +got):\n%s", tt.name, a, diff)
		}
	}
	if len(rec.Moved)+len(rec.Made)+len(s.Moved) > 0 {
		t.Errorf("left: %+v, %+v", rec, s.Moved)
	}
}

// What could not be made in a network namespace is not recorded.
func TestVLANElsewhereFails(t *testing.T) {
	v := unit(t, "[VLAN]\nId=7\nNetworkNamespace=job\n").VLANs[0]
	op, rec := AddVLAN{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "eth0.7", VLAN: v}, &link.Record{}
	if rec.Intend(op); len(rec.Moved) != 1 || len(rec.Made) != 0 {
		t.Errorf("intended: %+v", rec)
	}
	if rec.Failed(op); len(rec.Moved) != 0 {
		t.Errorf("failed: %+v", rec)
	}
}
