package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Where an operation is refused, those that depend on it are not tried: addresses would be set in the main table,
// and a second message would hide the first.
func TestHeldBack(t *testing.T) {
	refuse := func(match func(op link.Op) bool) func(link.Op) error {
		return func(op link.Op) error {
			if match(op) {
				return &nl.Error{What: "what", Errno: unix.EOPNOTSUPP, Message: "no"}
			}
			return nil
		}
	}
	vrf := "[Match]\nName=ib0\n[VRF]\nName=red\nTable=100\n[Network]\nAddress=10.0.0.1/24\n[Route]\nDestination=10.9.0.0/16\n" +
		"Gateway=10.0.0.2\n"
	hop := "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.1/24\n[NextHop]\nId=7\nGateway=10.0.0.2\n[Route]\n" +
		"Destination=10.9.0.0/16\nNextHop=7\n"
	for name, tt := range map[string]struct {
		unit    string
		refused func(op link.Op) bool
		never   []string // operations that must not be tried meanwhile

	}{
		"a VRF": {vrf, func(op link.Op) bool { _, ok := op.(link.AddVRF); return ok },
			[]string{"ip address add", "ip route", "master"}},
		"a link in a VRF": {vrf, func(op link.Op) bool { _, ok := op.(link.SetMaster); return ok },
			[]string{"ip address add", "ip route"}},
		"a nexthop": {hop, func(op link.Op) bool { _, ok := op.(link.SetNextHop); return ok },
			[]string{"ip route add"}},
		"a child": {"[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n",
			func(op link.Op) bool { _, ok := op.(link.AddChild); return ok }, []string{"dev ib0.8001", "set ib0.8001"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := system(t, 1)
			s.fail = refuse(tt.refused)
			r := launch(t, s, &notes{}, map[string]string{"10-ib0.ibnetwork": tt.unit,
				"20-child.ibnetwork": "[Match]\nName=ib0.8001\n[Network]\nAddress=10.0.1.1/24\n"})
			defer r.stop()
			for range 2 {
				time.Sleep(time.Minute) // tried again
				synctest.Wait()
				tried := strings.Join(s.take(), "\n")
				for _, n := range tt.never {
					if strings.Contains(tried, n) {
						t.Errorf("%s is refused, and there is %q:\n%s", name, n, tried)
					}
				}
			}
			if st := r.link("ib0"); name != "a child" && (st.State == link.StateConfigured || st.Reason().Text == "") {
				t.Errorf("%s is refused: ib0 is %s, %+v", name, st.State, st.Reason())
			}
			if n := strings.Count(r.log.String(), `error="what: operation`); n != 1 {
				t.Errorf("%s is refused: %d warnings:\n%s", name, n, r.log.String())
			}
			s.mu.Lock()
			s.fail = nil
			s.mu.Unlock()
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			if st := r.link("ib0"); st.State != link.StateConfigured {
				t.Errorf("%s is not refused any more: ib0 is %s, %+v", name, st.State, st.Reason())
			}
		})
	}
}

// What was held back is done when what it depends on is there: made after another try, also if that is due with one of
// another link, or made by another program.
func TestHeldBackUntil(t *testing.T) {
	made := link.Link{Index: 70, Name: "red", Type: 1, Kind: link.KindVRF, Flags: link.FlagNoARP, VRF: &link.VRF{Table: 100},
		Sysctl: map[string]string{}}
	for name, then := range map[string]func(s *memory){
		"granted": func(s *memory) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fail = nil
		},
		"made by another program": func(s *memory) {
			s.change(func(s *link.Snapshot) { s.Links = append(s.Links, made) })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := system(t, 3)
			s.fail = func(op link.Op) error {
				_, vrf := op.(link.AddVRF)
				if _, hop := op.(link.SetNextHop); vrf || hop {
					return &nl.Error{What: "what", Errno: unix.EOPNOTSUPP, Message: "no"}
				}
				return nil
			}
			r := launch(t, s, &notes{}, map[string]string{
				"10-ib0.ibnetwork": "[Match]\nName=ib0\n[VRF]\nName=red\nTable=100\n[Network]\nAddress=10.0.0.1/24\n",
				"20-ib1.ibnetwork": "[Match]\nName=ib1\n[Network]\nVRF=red\nAddress=10.0.1.1/24\n",
				"30-ib2.ibnetwork": "[Match]\nName=ib2\n[Network]\nAddress=10.0.2.1/24\n[NextHop]\nId=7\nGateway=10.0.2.2\n"})
			defer r.stop()
			then(s)
			r.Wake(Scope{All: true})
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			for _, l := range []string{"ib0", "ib1"} {
				if st := r.link(l); st.State != link.StateConfigured {
					t.Errorf("%s: %s is %s, %+v", name, l, st.State, st.Reason())
				}
			}
		})
	}
}

// While a link is not deleted in another network namespace, none is made in its place; one that was deleted there before is
// no failure.
func TestHeldForMoved(t *testing.T) {
	eth := link.Target{Link: "eth0", Ifindex: 4}
	moved := func(name string) link.DelMoved {
		return link.DelMoved{On: eth, Moved: link.Moved{Made: link.Made{Kind: link.KindVLAN, Name: name, On: 4}, Index: 7,
			Tag: link.VLANTag{ID: 7, Protocol: uint16(units.VLAN8021Q)}}}
	}
	add := roce.AddVLAN{On: link.On(eth), Name: "eth0.7", VLAN: units.VLAN{Id: units.Some(uint16(7)),
		NetworkNamespace: units.Some(units.NamespaceDir + "job")}}
	for _, tt := range []struct {
		name string
		err  unix.Errno
		held bool
	}{{"eth0.7", unix.EBUSY, true}, {"old", unix.EBUSY, true}, {"eth0.7", unix.ENODEV, false}} {
		var f failures
		f.note(moved(tt.name), &nl.Error{What: "what", Errno: tt.err})
		if got := f.hold(add) != nil; got != tt.held {
			t.Errorf("%s is not deleted: %v: held back %t", tt.name, tt.err, got)
		}
	}
	var f failures
	f.note(moved("other"), unix.EBUSY)
	add.VLAN.Id = units.Some(uint16(8))
	if err := f.hold(add); err != nil {
		t.Error(err)
	}
}
