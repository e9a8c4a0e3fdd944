package card

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// The same command needed again and again within minutes is contested; another
// value, another time or another device is none.
func TestContested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(t.TempDir(), nil, Config{})
		on := link.Target{Link: "eth0", Ifindex: 2}
		pfc := roce.SetPFC{On: on, Priority: 8}
		for n := range 4 {
			o.corrected(pfc)
			want := map[string]int{roce.ContestedKey(pfc): n}
			if n == 0 {
				want = nil
			}
			if diff := cmp.Diff(want, o.contested()); diff != "" {
				t.Errorf("after %d corrections (-want +got):\n%s", n, diff)
			}
			o.corrected(roce.SetPFC{On: on, Priority: uint8(n)}) // the unit is edited
			o.corrected(roce.AddVLAN{On: on, Name: "x"})
		}
		time.Sleep(contestMemory + time.Second)
		if got := o.contested(); got != nil {
			t.Errorf("after a while: %v", got)
		}
		o.corrected(pfc)
		o.corrected(pfc)
		o.Forget("eth1")
		if len(o.contested()) != 1 {
			t.Error("forgot for another link")
		}
		// Functions that are re-created by the daemon are set again.
		rate := uint32(1)
		vf := roce.SetVF{On: on, Attr: roce.VFAttr{MinRate: &rate, MaxRate: &rate}}
		o.corrected(vf)
		o.corrected(vf)
		if _, err := o.Apply(t.Context(), roce.SetVFs{On: on, Bus: "pci", Dev: "none", Count: 2}); !errors.As(err, new(*InProgress)) {
			t.Error(err)
		}
		synctest.Wait()
		if rs := o.Finished(); len(rs) != 1 || rs[0].Err == nil || len(o.contested()) != 1 {
			t.Errorf("after new functions: %v, %v", o.contested(), rs)
		}
		o.Forget("eth0")
		if got := o.contested(); got != nil {
			t.Errorf("after forgetting: %v", got)
		}
	})
}

func TestRunningPrograms(t *testing.T) {
	root := t.TempDir()
	for pid, comm := range map[string]string{"1": "systemd", "77": "lldpad", "78": "lldpad", "90": "rdma-ndd", "self": "lldpd"} {
		dir := filepath.Join(root, "proc", pid)
		testkit.WriteFile(t, filepath.Join(dir, "comm"), comm+"\n")
	}
	o := New(root, nil, Config{})
	for _, tt := range []struct {
		dcb, desc bool
		want      roce.State
	}{
		{false, false, roce.State{}},
		{true, false, roce.State{Agents: []string{"lldpad"}}},
		{false, true, roce.State{NodeDescBy: "rdma-ndd"}},
	} {
		var st roce.State
		o.runs(&st, tt.dcb, tt.desc)
		testkit.Diff(t, "", tt.want, st)
	}
}

// Without units that ask for any of it nothing is read or kept.
func TestNothingAsked(t *testing.T) {
	o := New(t.TempDir(), nil, Config{})
	s := &link.Snapshot{Links: []link.Link{{Index: 2, Name: "eth0"}}, Card: &roce.State{},
		Devices: []link.Device{{Name: "mlx5_0", Ports: []link.Port{{Num: 1}}}}}
	none := func(*link.Link) *units.Unit { return nil }
	o.Observe(s, none, func(*link.Device, *link.Port) *units.Unit { return nil }, func(int) (bool, bool) { return true, true })
	if s.Card != nil {
		t.Errorf("kept %+v", s.Card)
	}
	// With one, the rest of the system is not needed to know what is not there.
	u := &units.Unit{}
	u.RoCE.Present = true
	o.Observe(s, func(*link.Link) *units.Unit { return u }, func(*link.Device, *link.Port) *units.Unit { return nil },
		func(int) (bool, bool) { return true, true })
	if s.Card == nil || s.Card.RDMACM {
		t.Errorf("%+v", s.Card)
	}
	card := s.Card
	o.Observe(s, func(*link.Link) *units.Unit { return u }, func(*link.Device, *link.Port) *units.Unit { return nil },
		func(int) (bool, bool) { return true, true })
	if card != s.Card {
		t.Error("an unchanged state is a new one")
	}
}

// The name of a VLAN may be another link's when its removal comes.
func TestDelVLANOfAnother(t *testing.T) {
	kerneltest.Isolate(t)
	rt, err := rtnl.Dial()
	testkit.NoError(t, err)
	defer func() { _ = rt.Close() }()
	if handled, err := New(t.TempDir(), rt, Config{}).Apply(t.Context(),
		roce.DelVLAN{On: link.Target{Link: "eth0", Ifindex: 77}, Name: "lo"}); !handled || err != nil {
		t.Errorf("handled %v, %v: tried to remove what is no VLAN of the link", handled, err)
	}
}

func TestModprobeFile(t *testing.T) {
	root := t.TempDir()
	o := New(root, nil, Config{})
	op := roce.SetModprobe{Text: "options mlx4_en pfctx=0x08 pfcrx=0x08\n"}
	if handled, err := o.Apply(t.Context(), op); !handled || err != nil {
		t.Fatal(handled, err)
	}
	if got := o.modprobe(); got != op.Text {
		t.Errorf("got %q", got)
	}
	if handled, _ := o.Apply(t.Context(), link.SetUp{}); handled {
		t.Error("took an operation of another room")
	}
}

// A bond and its slaves have one port of a card that does RoCE LAG: what one of
// them does not ask for is not lost for the other.
func TestPortOfSeveralLinks(t *testing.T) {
	st := &roce.State{Devices: map[string]roce.Device{}}
	gids := []roce.GID{{Index: 1, Version: 2, Netdev: "bond0"}}
	setPort(st, "mlx5_bond_0", 1, roce.Port{Defaults: &roce.Defaults{Version: 2}, GIDs: gids})
	setPort(st, "mlx5_bond_0", 1, roce.Port{Type: &roce.PortType{Index: 1}})
	if p := st.Devices["mlx5_bond_0"].Ports[1]; p.Defaults == nil || p.Type == nil || len(p.GIDs) != 1 {
		t.Errorf("%+v", p)
	}
}
