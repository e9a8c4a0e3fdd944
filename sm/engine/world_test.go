package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/transport"
)

// world is a simulated subnet and the managers on it.
type world struct {
	t    testing.TB
	f    *fabric.Fabric
	sim  *simfabric.Sim
	cut  map[int32]bool      // links by their lower port index
	off  map[int32]bool      // nodes without power
	keys map[int32][]ib.PKey // the keys a port must have beside the default partition
	stop []func()
	wg   sync.WaitGroup

	between func(port int32, tr transport.Transport) transport.Transport // of a seat
}

func newWorld(t testing.TB, f *fabric.Fabric, opt simfabric.Options) *world {
	return &world{t: t, f: f, sim: simfabric.New(f, opt), cut: map[int32]bool{}, off: map[int32]bool{}}
}

// inWorld runs a test with virtual time on a fabric, with its hosts in their order.
func inWorld(t *testing.T, f *fabric.Fabric, opt simfabric.Options, do func(*testing.T, *world, *fabric.Fabric, []int32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, f, opt)
		defer w.close()
		do(t, w, f, hostsOf(f))
	})
}

func logger() *slog.Logger {
	if os.Getenv("SMLOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// manager starts a subnet manager on a port; the returned function ends it in
// an orderly way.
func (w *world) manager(port int32, cfg engine.Config) (*engine.Subnet, context.CancelFunc) {
	w.t.Helper()
	return w.managerOn(port, cfg, func(tr transport.Transport) transport.Transport { return tr })
}

// managerOn is manager with something between it and its port.
func (w *world) managerOn(port int32, cfg engine.Config, between func(transport.Transport) transport.Transport) (*engine.Subnet,
	context.CancelFunc) {
	w.t.Helper()
	tr, err := w.sim.Open(w.f.Ports[port].GUID)
	if err != nil {
		w.t.Fatal(err)
	}
	if cfg.Log == nil {
		cfg.Log = logger().With("sm", w.f.PortName(port))
	}
	s := engine.New(between(tr), cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.wg.Go(func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Logf("manager on %s: %v", w.f.PortName(port), err)
		}
	})
	end := func() { cancel(); <-done }
	w.stop = append(w.stop, end)
	return s, end
}

func (w *world) close() {
	for _, f := range w.stop {
		f()
	}
	w.wg.Wait()
	w.sim.Close()
}

// live lists the end ports that a port is connected with.
func (w *world) live(from int32) []int32 {
	f := w.f
	up := func(p int32) bool {
		q := f.Ports[p].Peer
		return q != fabric.None && !w.cut[min(p, q)] && !w.off[f.Ports[p].Node] && !w.off[f.Ports[q].Node]
	}
	var out []int32
	seen := map[int32]bool{f.Ports[from].Node: true}
	if f.Nodes[f.Ports[from].Node].Switch == fabric.None {
		out = append(out, from)
		if !up(from) {
			return out
		}
		from = f.Ports[from].Peer
		seen[f.Ports[from].Node] = true
		if f.Nodes[f.Ports[from].Node].Switch == fabric.None {
			return append(out, from)
		}
	}
	q := []int32{f.Ports[from].Node}
	for ; len(q) > 0; q = q[1:] {
		first, n := f.PortRange(q[0])
		out = append(out, first)
		for p := first + 1; p < first+n; p++ {
			if !up(p) {
				continue
			}
			r := f.Ports[p].Peer
			m := f.Ports[r].Node
			if f.Nodes[m].Switch == fabric.None {
				if r != out[0] {
					out = append(out, r)
				}
			} else if !seen[m] {
				seen[m] = true
				q = append(q, m)
			}
		}
	}
	return out
}

// check verifies the invariants of a settled subnet.
func (w *world) check(sm int32, s *engine.Subnet) error {
	x := s.Snapshot()
	live := w.live(sm)
	if w.f.Ports[sm].Num != 0 && len(live) == 1 {
		// Without a link there is no subnet to be master of.
		if x.State != "Discovering" {
			return fmt.Errorf("state without a link is %s", x.State)
		}
		return nil
	}
	if x.State != "Master" || x.Fabric == nil {
		return fmt.Errorf("state is %s", x.State)
	}
	lids := map[ib.LID]ib.GUID{}
	at := map[ib.GUID]ib.LID{}
	for _, p := range live {
		q := &w.f.Ports[p]
		pi, err := w.sim.PortInfo(w.f.Nodes[q.Node].GUID, q.Num)
		if err != nil {
			return err
		}
		if !pi.LID().IsUnicast() {
			return fmt.Errorf("%s has LID %v", w.f.PortName(p), pi.LID())
		}
		if o, dup := lids[pi.LID()]; dup {
			return fmt.Errorf("LID %v is of %v and %v", pi.LID(), o, q.GUID)
		}
		lids[pi.LID()], at[q.GUID] = q.GUID, pi.LID()
		if q.Num != 0 && pi.State() != ib.PortActive {
			return fmt.Errorf("%s is %v", w.f.PortName(p), pi.State())
		}
		k, err := w.sim.PKeys(w.f.Nodes[q.Node].GUID, q.Num)
		if err != nil || len(k) == 0 || k[0] != ib.DefaultPKey {
			return fmt.Errorf("%s: P_Keys %v, %v", w.f.PortName(p), k[:min(len(k), 4)], err)
		}
		if w.keys != nil && q.Num != 0 {
			got := slices.DeleteFunc(slices.Clone(k[1:]), func(k ib.PKey) bool { return k == 0 })
			slices.Sort(got)
			if !slices.Equal(got, w.keys[p]) {
				return fmt.Errorf("%s: P_Keys beside the default partition are %v, want %v", w.f.PortName(p), got, w.keys[p])
			}
		}
	}
	for _, a := range live {
		for _, b := range live {
			if w.f.Ports[a].Num == 0 {
				continue
			}
			g := w.f.Ports[b].GUID
			if got := w.sim.Reaches(w.f.Ports[a].GUID, at[g]); got != g {
				return fmt.Errorf("from %s LID %v of %s leads to %v", w.f.PortName(a), at[g], w.f.PortName(b), got)
			}
		}
	}
	lft := make([][]uint8, len(x.Fabric.Switches))
	for i := range lft {
		si, t, _, err := w.sim.SwitchTables(x.Fabric.Nodes[x.Fabric.Switches[i].Node].GUID)
		if err != nil {
			return err
		}
		if si.LinearFDBTop() < uint16(x.TopLID) {
			return fmt.Errorf("LinearFDBTop %d, highest LID %d", si.LinearFDBTop(), x.TopLID)
		}
		lft[i] = t[:min(int(x.TopLID)+1, len(t))]
	}
	if loop := route.CreditLoop(x.Fabric, lft, nil); loop != nil {
		return fmt.Errorf("credit loop: %v", loop)
	}
	if len(x.Fabric.EndPorts) != len(live) {
		extra := ""
		for _, p := range x.Fabric.EndPorts {
			if _, ok := at[x.Fabric.Ports[p].GUID]; !ok {
				extra += fmt.Sprintf(" %s (peer %d)", x.Fabric.PortName(p), x.Fabric.Ports[p].Peer)
			}
		}
		return fmt.Errorf("%d end ports, want %d; too many:%s", len(x.Fabric.EndPorts), len(live), extra)
	}
	return nil
}

// settle waits until check is content, at most for the given (virtual) time.
func (w *world) settle(sm int32, s *engine.Subnet, most time.Duration) time.Duration {
	w.t.Helper()
	t0 := time.Now()
	for {
		synctest.Wait()
		err := w.check(sm, s)
		if err == nil {
			return time.Since(t0)
		}
		if time.Since(t0) > most {
			w.t.Fatalf("not settled after %v: %v", most, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// total is the number of SMPs that the simulator saw of programs.
func (w *world) total() int { return int(w.sim.Counters().Total) }

// event does something at random to the subnet; the manager's host stays on.
func (w *world) event(r *rand.Rand, sm int32) string {
	f := w.f
	for {
		p := int32(r.IntN(len(f.Ports)))
		q := f.Ports[p].Peer
		n := f.Ports[p].Node
		node := f.Nodes[n].GUID
		switch k := r.IntN(10); {
		case k < 5 && q != fabric.None && !w.cut[min(p, q)]:
			w.cut[min(p, q)] = true
			w.sim.Cut(node, f.Ports[p].Num)
			return "cut " + f.PortName(p)
		case k < 8 && q != fabric.None && w.cut[min(p, q)]:
			delete(w.cut, min(p, q))
			w.sim.Restore(node, f.Ports[p].Num)
			return "restore " + f.PortName(p)
		case k == 8 && q != fabric.None && !w.cut[min(p, q)]:
			w.sim.Flap(node, f.Ports[p].Num)
			return "flap " + f.PortName(p)
		case k == 9 && n != f.Ports[sm].Node:
			w.sim.Reboot(node)
			return "reboot " + f.Nodes[n].Name()
		}
	}
}
