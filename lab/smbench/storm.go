package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/lab/simfabric/server"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// stormSample is what hosts saw of a subnet while its cables were cut.
type stormSample struct {
	Cuts               int
	Before, All, Worst phase                    // of the SA: without a storm, in the storm, in its worst second
	Slowest, Slowest0  map[string]time.Duration // answers to SMInfo, by host: in the storm, and before
	Unanswered         int                      // questions for SMInfo, of Asked
	Asked              int
	Changes            []string // managers that were seen in another state than before
	After              time.Duration
}

const (
	stormFor   = 60 * time.Second
	stormEvery = 50 * time.Millisecond // between two cuts
	stormDown  = 20                    // cables that are out at one time
	stormQuiet = 10 * time.Second      // for what the SA does without a storm
	stormHosts = "H-00001 is the master, H-00002 ibnetsm and H-00003 opensm as standbys, H-00012 waits for these, " +
		"H-00010 asks all of them for SMInfo, and H-00013, which has no manager and is answered for by the simulator, H-00011 the SA"
)

// benchStorm cuts cables between switches one after the other while hosts ask the SA and
// all managers for SMInfo.
func benchStorm(t *tools, o options) (s stormSample, err error) {
	name := "ft3-972"
	if len(o.names) > 0 {
		name = o.names[0]
	}
	f, err := stormFabric(name)
	if err != nil {
		return s, err
	}
	sim := simfabric.New(f, simfabric.Options{})
	defer sim.Close()
	dir, err := os.MkdirTemp("", "smbench-")
	if err != nil {
		return s, err
	}
	r := &rig{t: t, kind: "ibnetsim", dir: dir, sock: fmt.Sprintf("smstorm%d", os.Getpid())}
	defer r.stop()
	srv, err := server.Listen(sim, r.sock, nil)
	if err != nil {
		return s, err
	}
	defer srv.Close()
	fmt.Fprintf(out, "storm; %s, %s; load average %s\n", name, stormHosts, load())
	begin := time.Now()
	socket := filepath.Join(dir, "master.sock")
	master, err := r.run("ibnetsm", "H-00001", 10, true, "--socket="+socket)
	if err != nil {
		return s, err
	}
	if _, err := master.waitUp(1, 15*time.Minute); err != nil {
		return s, err
	}
	fmt.Fprintf(out, "up after %.1f s\n", time.Since(begin).Seconds())
	w, err := watchManagers(sim, "H-00010")
	if err != nil {
		return s, err
	}
	defer w.close()
	if err := w.add(sim, "H-00001", mad.SMMaster, time.Minute); err != nil {
		return s, err
	}
	who := programs{masterCPU: {master.cmd.Process.Pid}, ownCPU: {os.Getpid()}}
	for i, kind := range []string{"ibnetsm", "opensm"} {
		if !slices.Contains(o.sms, kind) {
			continue
		}
		host := fmt.Sprintf("H-%05d", 2+i)
		begin := time.Now()
		m, err := r.run(kind, host, 5-i, true)
		if err != nil {
			return s, err
		}
		who[standbyCPU] = append(who[standbyCPU], m.cmd.Process.Pid)
		if err := w.add(sim, host, mad.SMStandby, 15*time.Minute); err != nil {
			return s, fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Fprintf(out, "%s is standby after %.1f s\n", kind, time.Since(begin).Seconds())
	}
	if err := w.add(sim, "H-00013", noManager, time.Minute); err != nil {
		return s, err
	}
	err = storm(f, sim, w, who, socket, &s)
	return s, err
}

// noManager is the state of a port without a manager, which refuses the question.
const noManager mad.SMState = 0xff

// stormFabric is a fabric of either table.
func stormFabric(name string) (*fabric.Fabric, error) {
	for _, x := range scaleFabrics {
		if x.name == name {
			return x.make(), nil
		}
	}
	return fabricByName(name)
}

// storm cuts the cables, and measures.
func storm(f *fabric.Fabric, sim *simfabric.Sim, w *watch, who programs, socket string, s *stormSample) error {
	q, err := keepAsking(sim, "H-00011", f, who)
	if err != nil {
		return err
	}
	defer q.close()
	time.Sleep(time.Second) // to find a host takes the simulator's lock: what was asked meanwhile does not count
	w.reset()
	q.reset()
	start, err := pausesOf(socket)
	if err != nil {
		return err
	}
	time.Sleep(stormQuiet)
	s.Before = sumOf(q.reset())
	s.Slowest0, _, _, _ = w.reset()
	quiet, err := pausesOf(socket)
	if err != nil {
		return err
	}
	cables := cablesOf(f)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(cables), func(i, j int) { cables[i], cables[j] = cables[j], cables[i] })
	var down []int32
	restore := func() error {
		p := &f.Ports[down[0]]
		down = down[1:]
		return sim.Restore(f.Nodes[p.Node].GUID, p.Num)
	}
	tick := time.NewTicker(stormEvery)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < stormFor && s.Cuts < len(cables); s.Cuts++ {
		<-tick.C
		c := cables[s.Cuts]
		if err := sim.Cut(f.Nodes[f.Ports[c].Node].GUID, f.Ports[c].Num); err != nil {
			return err
		}
		if down = append(down, c); len(down) > stormDown {
			if err := restore(); err != nil {
				return err
			}
		}
	}
	seconds := q.reset()
	s.Slowest, s.Asked, s.Unanswered, s.Changes = w.reset()
	if s.All = sumOf(seconds); len(seconds) > 0 {
		s.Worst = slices.MinFunc(seconds, func(a, b phase) int { return a.rate() - b.rate() })
	}
	storm, err := pausesOf(socket)
	if err != nil {
		return err
	}
	for len(down) > 0 {
		if err := restore(); err != nil {
			return err
		}
	}
	begin := time.Now()
	for !sim.AllActive() && time.Since(begin) < 5*time.Minute {
		time.Sleep(100 * time.Millisecond)
	}
	s.After = time.Since(begin)
	fmt.Fprintf(out, "%d cables cut, one each %v, %d out at one time; load average %s\n", s.Cuts, stormEvery, stormDown, load())
	fmt.Fprintf(out, "SA answers a second: %d before; in the storm %d, at least %d in any second (%.2f)\n", s.Before.rate(), s.All.rate(),
		s.Worst.rate(), float64(s.Worst.rate())/float64(max(1, s.Before.rate())))
	fmt.Fprintf(out, "before: %v\nin the storm: %v\nin its worst second: %v\n", &s.Before, &s.All, &s.Worst)
	fmt.Fprintf(out, "requests waited for the master's own work: before %s; in the storm %s\n", pausesBetween(&start, &quiet),
		pausesBetween(&quiet, &storm))
	for _, host := range slices.Sorted(maps.Keys(s.Slowest)) {
		fmt.Fprintf(out, "SMInfo of %s: slowest answer %v before, %v in the storm\n", host,
			s.Slowest0[host].Round(time.Microsecond), s.Slowest[host].Round(time.Microsecond))
	}
	fmt.Fprintf(out, "SMInfo: %d of %d not answered within a second\n", s.Unanswered, s.Asked)
	fmt.Fprintf(out, "changes of roles: %d %v; all ports Active %.1f s after the last cable\n", len(s.Changes), s.Changes, s.After.Seconds())
	return nil
}

// cablesOf are the cables between switches, by one of their ports.
func cablesOf(f *fabric.Fabric) (l []int32) {
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer > int32(i) && f.Nodes[p.Node].Switch != fabric.None && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			l = append(l, int32(i))
		}
	}
	return l
}

// watch queries managers for SMInfo from a host, one after the other.
type watch struct {
	mu       sync.Mutex
	managers []watched
	slowest  map[string]time.Duration
	asked    int
	silent   int
	changes  []string
	end      func()
}

type watched struct {
	host  string
	lid   ib.LID
	state mad.SMState // as it was, and is to be
}

func client(sim *simfabric.Sim, host string) (transport.Transport, error) {
	h := sim.FindHost(host)
	if len(h) == 0 {
		return nil, fmt.Errorf("the fabric has no %s", host)
	}
	return sim.OpenClient(h[0].PortGUID, false)
}

func watchManagers(sim *simfabric.Sim, host string) (*watch, error) {
	c, err := client(sim, host)
	if err != nil {
		return nil, err
	}
	w := &watch{slowest: map[string]time.Duration{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.end = func() { cancel(); <-done; c.Close() }
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			w.mu.Lock()
			l := slices.Clone(w.managers)
			w.mu.Unlock()
			for _, m := range l {
				begin := time.Now()
				state, ok := smState(ctx, c, m.lid, uint64(n))
				if ctx.Err() == nil {
					w.saw(m, state, ok, time.Since(begin))
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return w, nil
}

func (w *watch) close() { w.end() }

func (w *watch) saw(m watched, state mad.SMState, ok bool, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	switch {
	case !ok:
		w.silent++
	case state != m.state:
		w.changes = append(w.changes, fmt.Sprintf("%s: %v", m.host, state))
		fallthrough
	default:
		w.slowest[m.host] = max(w.slowest[m.host], took)
	}
}

// add watches one more manager, once it has reached a state.
func (w *watch) add(sim *simfabric.Sim, host string, state mad.SMState, limit time.Duration) error {
	c, err := client(sim, "H-00012")
	if err != nil {
		return err
	}
	defer c.Close()
	lid := sim.FindHost(host)[0].LID // long on a large fabric, with the simulator's lock
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if now, ok := smState(context.Background(), c, lid, uint64(time.Now().UnixNano())); ok && now == state {
			w.mu.Lock()
			w.managers = append(w.managers, watched{host, lid, state})
			w.mu.Unlock()
			return nil
		}
	}
	return fmt.Errorf("%s is not %v after %v", host, state, limit)
}

// reset gives what was seen since the last.
func (w *watch) reset() (slowest map[string]time.Duration, asked, silent int, changes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slowest, asked, silent, changes = w.slowest, w.asked, w.silent, w.changes
	w.slowest, w.asked, w.silent, w.changes = map[string]time.Duration{}, 0, 0, nil
	return slowest, asked, silent, changes
}

// smState queries a manager for SMInfo; ok is false without an answer within a second.
func smState(ctx context.Context, c transport.Transport, lid ib.LID, tid uint64) (state mad.SMState, ok bool) {
	p := transport.Packet{LID: lid, Timeout: time.Second}
	mad.PutLR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, tid&0x7fffffff, 0, nil)
	if c.Send(&p) != nil {
		return 0, false
	}
	in := make([]transport.Packet, 1)
	for {
		if _, err := c.Recv(ctx, in); err != nil || in[0].Err != nil {
			return 0, false
		}
		if b := &in[0].MAD; mad.MethodOf(b).IsResponse() {
			var i mad.SMInfo
			if mad.StatusOf(b) != 0 {
				return noManager, true
			}
			ok = i.Decode(mad.SMPData(b)[:]) == nil
			return i.State, ok
		}
	}
}
