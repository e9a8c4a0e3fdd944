package dhcpclient

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
	"ibnetworkd/units"
)

// script is a client that does as a test says.
type script struct {
	view     link.DHCP
	drops    link.DHCPDrops
	lease    *link.Lease
	deadline time.Duration
	calls    []string
	onPacket func(*script)
	ticked   chan bool
	ip       bool // whether it listens
}

func (s *script) did(what string) []dhcp.Send {
	s.calls = append(s.calls, what)
	return nil
}
func (s *script) Deadline() time.Duration                               { return s.deadline }
func (s *script) View() link.DHCP                                       { return s.view }
func (s *script) Drops() link.DHCPDrops                                 { return s.drops }
func (s *script) Lease() *link.Lease                                    { return s.lease }
func (s *script) Listens() (ip bool, a netip.Addr)                      { return s.ip, a }
func (s *script) Renew(time.Duration) []dhcp.Send                       { return s.did("renew") }
func (s *script) End(time.Duration) []dhcp.Send                         { return s.did("end") }
func (s *script) Oversized()                                            { s.did("oversized") }
func (s *script) Carrier(time.Duration, bool, uint32, bool) []dhcp.Send { return s.did("carrier") }
func (s *script) Tick(time.Duration) []dhcp.Send {
	s.deadline = 0
	s.ticked <- true
	return s.did("tick")
}
func (s *script) Packet(time.Duration, []byte, bool) []dhcp.Send {
	s.onPacket(s)
	return s.did("packet")
}

// begun are clients of which one, by a script, has begun on a link.
func begun(t *testing.T, k key, name string, m *script) (*Clients, *client, *testkit.Buffer, *int) {
	t.Helper()
	log, woken := new(testkit.Buffer), new(int)
	c := New(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), t.TempDir(), "/nonexistent",
		func(map[int]bool) { *woken++ })
	c.begin(k, wanted{name: name, id: []byte{1}, make: func(uint64, *link.Lease, bool) machine { return m }}, nil, false, false)
	return c, c.clients[k], log, woken
}

var granted = link.Lease{Address: netip.MustParsePrefix("10.4.0.100/24"), Server: netip.MustParseAddr("10.4.0.250"), Lifetime: link.Forever}

// The first answer that cannot be used is in the view and the log, those of the same minute are counted alone.
func TestBadAnswers(t *testing.T) {
	m := &script{view: link.DHCP{State: link.DHCPSelecting, Tries: 4}, onPacket: func(s *script) {
		s.drops.Contradictory++
		s.drops.Last = "a mask with holes"
	}}
	c, x, log, woken := begun(t, key{9, false}, "ib0", m)
	x.ip, m.ip = &packet.Listener{Index: 9}, true
	*woken = 0
	for range 3 {
		c.receive(packet.Event{From: x.ip, Data: []byte{1}})
	}
	v := c.of(&link.Link{Index: 9, Name: "ib0"}, false)
	if v.Drops.Last != "a mask with holes" || v.Drops.Contradictory != 1 || *woken != 1 ||
		strings.Count(log.String(), "answer was dropped") != 1 {
		t.Errorf("%+v, woken %d times:\n%s", v.Drops, *woken, log.String())
	}
	x.warned -= 2 * time.Minute
	c.receive(packet.Event{From: x.ip, Data: []byte{1}})
	if v = c.of(&link.Link{Index: 9, Name: "ib0"}, false); v.Drops.Contradictory != 4 || *woken != 2 {
		t.Errorf("a minute later %+v, woken %d times", v.Drops, *woken)
	}
	// What is of no socket, too long, or the end of one.
	c.receive(packet.Event{From: &packet.Listener{Index: 9}})
	c.receive(packet.Event{From: x.ip, Err: packet.ErrOversized})
	if last := m.calls[len(m.calls)-1]; last != "oversized" {
		t.Errorf("%v", m.calls)
	}
}

// A lease is in its file as long as the client has it, and each change is logged.
func TestNote(t *testing.T) {
	m := &script{}
	c, x, log, _ := begun(t, key{9, false}, "ib0", m)
	again := granted
	for _, step := range []struct {
		lease *link.Lease
		text  string
		kept  bool
	}{{&granted, `"DHCP lease"`, true}, {&again, `"DHCP lease renewed"`, true}, {nil, `"the DHCP lease is lost"`, false}} {
		m.lease = step.lease
		c.after(x, nil)
		if _, kept := c.store(false).load()["ib0"]; kept != step.kept || strings.Count(log.String(), step.text) != 1 {
			t.Errorf("%s: file %t\n%s", step.text, kept, log.String())
		}
	}
}

// The lease of a link that has gone is kept for the one that has its name next; that of a link whose unit does not ask
// for it any more is given back.
func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		index int
		name  string
		kept  bool
	}{{1 << 30, "ib0", true}, {1, "lo", false}} {
		m := &script{lease: &granted}
		c, x, _, woken := begun(t, key{tt.index, false}, tt.name, m)
		*woken = 0
		c.reconcile()
		_, saved := c.saved[savedKey{tt.name, false}]
		_, file := c.store(false).load()[tt.name]
		if saved != tt.kept || file != tt.kept || (m.calls[len(m.calls)-1] == "end") == tt.kept || (*woken == 0) != tt.kept {
			t.Errorf("%s: kept %t, file %t, %v, woken %d times", tt.name, saved, file, m.calls, *woken)
		}
		if c.clients[x.key] != nil || c.views[x.key] != nil {
			t.Errorf("%s: the client goes on", tt.name)
		}
	}
}

// What was saved is asked for again by a link of the same name and identifier, until it ends.
func TestTakeSaved(t *testing.T) {
	text := map[string]string{"ib0": "[Network]\nDHCP=ipv4\n[DHCPv4]\nClientIdentifier=0x0102\n"}
	l := link.Link{Index: 9, Name: "ib0", Type: link.ARPHRDInfiniBand, HWAddr: ipoibAddr(1), Flags: link.FlagUp | link.FlagLowerUp,
		Addresses: []link.Address{{Prefix: granted.Address}}}
	for name, tt := range map[string]struct {
		change func(*saved)
		state  link.DHCPState
		use    bool // before the server has confirmed it
	}{
		"the same link":      {func(*saved) {}, link.DHCPBound, true},
		"another link":       {func(s *saved) { s.Ifindex = 8 }, link.DHCPRebooting, false},
		"another identifier": {func(s *saved) { s.ClientID = []byte{3} }, link.DHCPSelecting, false},
		"one that has ended": {func(s *saved) { s.Lease.Lifetime = 1 }, link.DHCPSelecting, false},
	} {
		c := New(slog.New(slog.DiscardHandler), t.TempDir(), "/nonexistent", func(map[int]bool) {})
		s := saved{Link: "ib0", Ifindex: 9, ClientID: []byte{1, 2}, Lease: granted}
		tt.change(&s)
		c.saved[savedKey{"ib0", false}] = s
		v := viewOf(t, text, l)
		c.Complete(v.Snapshot)
		if before := v.Snapshot.Links[0].DHCP; (before != nil) != (s.Ifindex == 9 && s.Lease.Lifetime > 1) ||
			before != nil && before.State != link.DHCPKept {
			t.Errorf("%s: before the client has begun %+v", name, before)
		}
		c.Update(v)
		c.reconcile()
		got := c.of(&l, false)
		if got == nil || got.State != tt.state || (got.Lease != nil) != tt.use {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Run hands out ticks and requests for a renewal, and ends with its context.
func TestRun(t *testing.T) {
	m := &script{ticked: make(chan bool, 1), deadline: now() + 20*time.Millisecond}
	c, _, _, _ := begun(t, key{1 << 30, true}, "ib0", m)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c.arm()
	go func() { ended <- c.Run(ctx) }()
	<-m.ticked
	if err := c.Renew(ctx, "ib0"); err != nil {
		t.Error(err)
	}
	if err := c.Renew(ctx, "ib1"); err == nil || !strings.Contains(err.Error(), "ib1 has no DHCP client") {
		t.Errorf("%v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := strings.Join(m.calls, " "); got != "carrier tick renew" {
		t.Error(got)
	}
	if err := c.Renew(ctx, "ib0"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Another name, or another configuration, begins the client again; the file of the former name goes.
func TestRenamed(t *testing.T) {
	l := link.Link{Index: 9, Name: "ib0", Type: link.ARPHRDInfiniBand, HWAddr: ipoibAddr(1),
		Addresses: []link.Address{{Prefix: granted.Address}}}
	c := New(slog.New(slog.DiscardHandler), t.TempDir(), "/nonexistent", func(map[int]bool) {})
	c.saved[savedKey{"ib0", false}] = saved{Link: "ib0", Ifindex: 9, ClientID: []byte{1, 2}, Lease: granted}
	update := func(text string) *client {
		t.Helper()
		v := viewOf(t, map[string]string{l.Name: "[Network]\nDHCP=ipv4\n[DHCPv4]\nClientIdentifier=0x0102\n" + text}, l)
		c.Update(v)
		c.reconcile()
		return c.clients[key{9, false}]
	}
	first := update("")
	if update("") != first {
		t.Error("the same configuration begins the client again")
	}
	if x := update("VendorClassIdentifier=x\n"); x == first || x.m.Lease() == nil {
		t.Error("another configuration does not begin the client again, or loses its lease")
	}
	testkit.NoError(t, c.store(false).save(first.save(&granted)))
	l.Name = "storage"
	if x := update(""); x.name != "storage" || x.m.Lease() == nil || len(c.store(false).load()) != 0 {
		t.Errorf("%s, lease %v, files %v", x.name, x.m.Lease(), c.store(false).load())
	}
	c.Update(daemon.View{Snapshot: &link.Snapshot{}})
	c.reconcile()
	if len(c.clients) != 0 {
		t.Error("a client without a link")
	}
}

// A name is asked for with UseHostname=yes alone, once.
func TestRequestHostname(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "UseHostname=no\n": 0, "UseHostname=yes\n": 1, "UseHostname=yes\nRequestOptions=12 66\n": 1,
	} {
		u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nDHCP=ipv4\n[DHCPv4]\n"+text))
		n := 0
		for _, o := range config4(&link.Snapshot{}, &link.Link{Name: "ib0", Type: link.ARPHRDInfiniBand}, u, identity{}).Request {
			if o == 12 {
				n++
			}
		}
		if n != want {
			t.Errorf("%q: requested %d times, want %d", text, n, want)
		}
	}
}
