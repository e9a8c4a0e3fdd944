package roce

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// apply does what the kernel does with an operation; queues are the answers to requests
// for settings of queues, by link index.
func apply(t testing.TB, s *link.Snapshot, st *State, queues map[int]Answers, op link.Op) {
	on := op.Target()
	l := st.Links[on.Ifindex]
	defaults := func() *Defaults { return st.Devices[on.IBDevice].Ports[on.Port].Defaults }
	switch o := op.(type) {
	case SetPortType:
		p := st.Devices[on.IBDevice].Ports[on.Port].Type
		p.Configured = o.Type
		if o.Type != units.PortTypeAuto {
			p.Current = o.Type
		}
	case SetNodeDesc:
		*st.Devices[on.IBDevice].NodeDesc = o.Desc
	case SetVersion:
		defaults().Version = o.Version
	case SetToS:
		defaults().ToS = o.ToS
	case SetDCBX:
		*l.DCB.DCBX = o.Flags
	case SetPFC:
		*l.DCB.PFC = o.Priority
		if o.Delay > 0 && o.Delay < 1000 { // mlx5e_dcbnl_ieee_setpfc
			l.DCB.Delay = o.Delay
		}
	case SetECN:
		*l.ECN &^= 1 << o.Priority
		if o.Enable {
			*l.ECN |= 1 << o.Priority
		}
	case SetETS:
		*l.DCB.ETS = o.Classes
	case MapDSCP:
		l.DCB.DSCP[o.DSCP] = o.Priority
	case ClearDSCP:
		clear(l.DCB.DSCP)
	case SetTrust:
		l.DCB.Trust = []units.Trust{o.Trust}
	case SetBuffers:
		*l.DCB.Buffer = o.Buffers
		for i, n := range o.Buffers.Size {
			l.DCB.Buffer.Size[i] = (n + 127) &^ 127 // in cells
		}
	case SetEthtool:
		setEthtool(l.Ethtool, o)
		if queues[on.Ifindex] == nil {
			queues[on.Ifindex] = Answers{}
		}
		queues[on.Ifindex].Request(o)
		for p, v := range l.Ethtool {
			v.Asked = queues[on.Ifindex].Read(p, v.N)
			l.Ethtool[p] = v
		}
	case SetModprobe:
		st.Modprobe = o.Text
	case AddSoft:
		l.Soft = append(l.Soft, SoftDevice{Name: o.Name, Driver: o.Driver})
	case AddVLAN:
		s.Links = append(s.Links, o.Link(&link.Link{Index: on.Ifindex, Type: 1}))
		s.Links[len(s.Links)-1].Index = 99 + len(s.Links)
		setVLAN(&s.Links[len(s.Links)-1], &o.VLAN)
	case SetVLAN:
		i := slices.IndexFunc(s.Links, func(l link.Link) bool { return l.Name == o.Name })
		for _, from := range o.DropIngress {
			delete(s.Links[i].VLAN.Ingress, from)
		}
		for _, from := range o.DropEgress {
			delete(s.Links[i].VLAN.Egress, from)
		}
		setVLAN(&s.Links[i], &o.VLAN)
	case DelVLAN:
		s.Links = slices.DeleteFunc(s.Links, func(l link.Link) bool { return l.Name == o.Name })
	case DelSoft:
		l.Soft = slices.DeleteFunc(l.Soft, func(d SoftDevice) bool { return d.Name == o.Name })
	case SetAutoprobe:
		*l.SRIOV.Autoprobe = o.Probe
	case SetVFs:
		l.SRIOV.VFs = nil
		for range o.Count {
			l.SRIOV.VFs = append(l.SRIOV.VFs, VF{Dev: "x", Driver: "d", OwnGUID: 5, NodeGUID: new(ib.GUID(0)), PortGUID: new(ib.GUID(0)),
				LinkState: new(units.VFLinkAuto), Trust: new(false), Spoof: new(false)})
		}
	case SetVF:
		v := &l.SRIOV.VFs[o.VF]
		switch a := o.Attr; {
		case a.NodeGUID != nil:
			v.NodeGUID = a.NodeGUID
		case a.PortGUID != nil:
			v.PortGUID = a.PortGUID
		case a.LinkState != nil:
			v.LinkState = a.LinkState
		case a.Trust != nil:
			v.Trust = a.Trust
		case a.Spoof != nil:
			v.Spoof = a.Spoof
		case a.MaxRate != nil:
			v.MinRate, v.MaxRate = *a.MinRate, *a.MaxRate
		case a.MAC.IsValid():
			v.MAC = a.MAC
		case a.VLAN != nil:
			v.VLAN, v.QoS, v.Proto = *a.VLAN, a.QoS, a.Proto
		default:
			t.Fatalf("%s: sets nothing", op)
		}
	case SetVFGUIDs:
		v := &l.SRIOV.VFs[o.VF]
		for _, a := range o.Attrs() {
			if a.NodeGUID != nil {
				v.NodeGUID = a.NodeGUID
			} else {
				v.PortGUID = a.PortGUID
			}
		}
		v.OwnGUID = *v.NodeGUID
	case RebindVF:
		v := &l.SRIOV.VFs[o.VF]
		v.OwnGUID = *v.NodeGUID
	default:
		t.Fatalf("%T is not known", op)
	}
	st.Links[on.Ifindex] = l
}

// setEthtool does what mlx5e_ethtool_set_ringparam and mlx5e_ethtool_set_coalesce do.
func setEthtool(have map[units.EthtoolParam]Ethtool, o SetEthtool) {
	set := func(p units.EthtoolParam, n uint32) {
		if v, ok := have[p]; ok {
			v.N = n
			have[p] = v
		}
	}
	var reset []units.EthtoolParam
	for _, x := range o.Settings {
		switch n := x.N; {
		case o.Group == units.EthtoolRings:
			for x.N = 1; x.N < n; x.N *= 2 {
			}
		case x.Param == units.UseAdaptiveRxCoalesce && have[x.Param].N != n:
			reset = []units.EthtoolParam{units.RxCoalesceSec, units.RxMaxCoalescedFrames}
		}
		set(x.Param, x.N)
	}
	for _, p := range reset {
		set(p, 16)
	}
}

// setVLAN does what vlan_changelink, macvlan_changelink and ipvlan_nl_changelink do.
func setVLAN(l *link.Link, v *units.VLAN) {
	switch v.Kind {
	case units.KindMACVLAN:
		l.VLAN.Mode = uint16(v.MACVLANMode.Or(units.MACVLANMode(l.VLAN.Mode)))
		return
	case units.KindIPVLAN:
		l.VLAN.Mode, l.VLAN.Flags = uint16(v.IPVLANMode.V), uint32(v.IPVLANFlags.V)
		return
	}
	for _, f := range vlanFlags(v) {
		if f.want.Set {
			l.VLAN.Flags &^= f.bit
			if f.want.V {
				l.VLAN.Flags |= f.bit
			}
		}
	}
	set := func(m *map[uint32]uint32, ms []units.Value[units.QOSMap]) {
		for _, x := range ms {
			if *m == nil {
				*m = map[uint32]uint32{}
			}
			if (*m)[x.V.From] = x.V.To; x.V.To == 0 {
				delete(*m, x.V.From)
			}
		}
	}
	set(&l.VLAN.Ingress, v.IngressQOSMaps)
	set(&l.VLAN.Egress, v.EgressQOSMaps)
}

// The two laws: planning twice gives the same bytes, and applying plans leads to
// where nothing is left to plan.
func TestLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	planned, used, types := 0, map[string]bool{}, map[string]bool{}
	for seed := range 1500 {
		text := randomUnit(t, r, used)
		u := unit(t, text)
		index := 2 + r.IntN(2)
		s, st := system()
		queues := map[int]Answers{}
		if r.IntN(2) == 0 {
			st.Links[2].DCB.Trust = []units.Trust{units.TrustPCP}
		}
		if r.IntN(2) == 0 {
			st.Links[2].DCB.DSCP = map[uint8]uint8{26: 1, 8: 2}
		}
		a, b := run(s, st, index, u), run(s, st, index, u)
		if diff := cmp.Diff(a.ops, b.ops); diff != "" {
			t.Fatalf("seed %d: two plans differ:\n%s", seed, diff)
		}
		// What exists after the first plan (virtual functions) may need a second.
		for round := 1; ; round++ {
			p := run(s, st, index, u)
			for _, x := range p.steps {
				types[fmt.Sprintf("%T", x.Op)] = true
			}
			if p.restart {
				for _, x := range p.steps {
					apply(t, s, st, queues, x.Op)
				}
				if q := run(s, st, index, u); q.restart {
					t.Fatalf("seed %d: the type is changed again: %v", seed, q.ops)
				}
				break // the link is another one now
			}
			if len(p.ops) == 0 {
				for _, w := range u.Link.Ethtool { // which mlx5 does not round
					if now, ok := st.Links[index].Ethtool[w.V.Param]; ok && w.V.Param.Group() == units.EthtoolCoalesce && now.N != w.V.N {
						t.Fatalf("seed %d: %s=%s ends as %d\nfor\n%s", seed, w.V.Param.Key(), w.V, now.N, text)
					}
				}
				break
			}
			planned += len(p.ops)
			if round > 2 {
				t.Fatalf("seed %d: round %d still plans %v\nfor\n%s", seed, round, p.ops, text)
			}
			for _, x := range p.steps {
				apply(t, s, st, queues, x.Op)
			}
		}
	}
	if planned < 500 {
		t.Errorf("only %d operations in all", planned)
	}
	for _, op := range Ops() {
		switch op.(type) {
		case DelVLAN, DelSoft: // of PlanRemovals
		case MoveGID: // of PlanGIDIndex, which daemon/plan tests
		case SetVLAN, RebindVF, SetModprobe: // of systems that TestPlans has
		default:
			if !types[fmt.Sprintf("%T", op)] {
				t.Errorf("%T was never planned", op)
			}
		}
	}
	for _, spec := range units.Schema() {
		for _, k := range spec.Keys {
			if lawValues[spec.Name] != nil && !used[spec.Name+"."+k.Name] {
				t.Errorf("[%s] %s= was never tried", spec.Name, k.Name)
			}
		}
	}
}

// lawValues are values beside the examples and words of the schema, by section.
var lawValues = map[string]map[string][]string{
	"Port": {"NodeDescription": {"x"}},
	"Link": {"RxBufferSize": {"1000", "9000"}, "TxBufferSize": {"8192"}, "CombinedChannels": {"9", "2"}, "RxCoalesceSec": {"0"}},
	"RoCE": {"Version": {"1"}, "DSCP": {"0"}, "Priority": {"5"}, "PFC": {"3 4"}, "ETS": {"0:100", "0:40 3:60",
		"1:strict", "0:10"}, "PriorityToClass": {"3:3 4:0"}, "DSCPToPriority": {"26:4 48:6"},
		"BufferSize": {"0:131072 1:1000", "7:1G"}, "PriorityToBuffer": {"3:1"}, "CableLength": {"0", "1", "999", "1000"}},
	"SoftRoCE": {"Name": {"mlx4_0"}},
	"VLAN": {"Id": {"9"}, "Name": {"ib0"}, "EgressQOSMaps": {"1-1 2-0"}, "IngressQOSMaps": {"0-7"},
		"ReorderHeader": {"no"}, "GVRP": {"no"}},
	"MACVLAN":          {"Name": {"ib0", "m1"}},
	"IPVLAN":           {"Name": {"ib0", "i1"}},
	"VirtualFunctions": {"Count": {"0", "2", "3", "999"}},
	"VF": {"VirtualFunction": {"1", "7"}, "MinRate": {"0"}, "MaxRate": {"100M"}, "VLANId": {"0"},
		"QualityOfService": {"0"}, "NodeGUID": {"0x0002c9030a000002"}},
}

// randomUnit makes sections of this package with keys from the schema.
func randomUnit(t *testing.T, r *rand.Rand, used map[string]bool) string {
	need := map[string]string{"VLAN": "Id", "MACVLAN": "Name", "IPVLAN": "Name", "VF": "VirtualFunction"}
	var b strings.Builder
	for _, spec := range units.Schema() {
		more, ours := lawValues[spec.Name]
		if !ours || r.IntN(3) == 0 {
			continue
		}
		for range 1 + r.IntN(2) {
			fmt.Fprintf(&b, "[%s]\n", spec.Name)
			for _, k := range spec.Keys {
				if k.Name != need[spec.Name] && r.IntN(3) > 0 || k.Name == "Type" && r.IntN(3) > 0 {
					continue
				}
				values := slices.Concat([]string{k.Example}, k.Values, more[k.Name])
				fmt.Fprintf(&b, "%s=%s\n", k.Name, values[r.IntN(len(values))])
				used[spec.Name+"."+k.Name] = true
			}
			if !spec.Repeat {
				break
			}
		}
	}
	return b.String()
}

func FuzzState(f *testing.F) {
	_, st := system()
	b, err := json.Marshal(st)
	testkit.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"links":{"2":{"dcb":{}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &State{}
		if json.Unmarshal(b, st) != nil {
			return
		}
		s, _ := system()
		u := unit(t, "[Port]\nType=eth\n[RoCE]\nVersion=2\nPFC=3\nETS=0:100\nBufferSize=0:1000\nTrust=dscp\n[VirtualFunctions]\n"+
			"NodeGUID=auto\nLinkState=enable\n")
		before, err := json.Marshal(st)
		testkit.NoError(t, err)
		for _, i := range []int{2, 3} {
			run(s, st, i, u)
		}
		if after, err := json.Marshal(st); err != nil || string(before) != string(after) {
			t.Errorf("planning changed the state: %v\n%s\n%s", err, before, after)
		}
	})
}
