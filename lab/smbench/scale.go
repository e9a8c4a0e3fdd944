package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// scaleSample is a subnet brought up in this process.
type scaleSample struct {
	Hosts, Switches, EndPorts, Links int
	Up                               time.Duration
	CPU                              time.Duration
	SMPs                             uint64
	HeapSim, HeapBoth                uint64
	Resweep                          time.Duration
	ResweepSMPs                      uint64
	Table                            time.Duration // all NodeRecords, for one host that asks
	TableBytes                       int
}

// scaleFabrics are three-level trees up to the size of the LID space: 48,768
// end ports, switches included.
var scaleFabrics = []struct {
	name string
	make func() *fabric.Fabric
}{
	{"ft3-5184", func() *fabric.Fabric { return gen.FatTree3(36, 16, 18) }},
	{"ft3-46848", func() *fabric.Fabric { return gen.FatTree3(128, 12, 61) }},
}

// benchScale brings up subnets that no other simulator can, manager and subnet in
// this process.
func benchScale(o options) ([]scaleSample, error) {
	var all []scaleSample
	fmt.Fprintf(out, "manager and subnet in one process; load average %s\n", load())
	for _, f := range scaleFabrics {
		if len(o.names) > 0 && o.names[0] != f.name {
			continue
		}
		s, err := scaleOnce(f.make())
		if err != nil {
			return all, fmt.Errorf("%s: %w", f.name, err)
		}
		all = append(all, s)
		fmt.Fprintf(out, "%-10s %d hosts, %d switches, %d end ports, %d links: up in %.2f s (%.2f s CPU, subnet and manager), %d SMPs; "+
			"heap %.0f MB subnet, %.0f MB manager; resweep %.3f s, %d SMPs; a host asks for all NodeRecords: %.1f MB in %.2f s\n",
			f.name, s.Hosts, s.Switches, s.EndPorts, s.Links, s.Up.Seconds(), s.CPU.Seconds(), s.SMPs,
			float64(s.HeapSim)/(1<<20), float64(s.HeapBoth-s.HeapSim)/(1<<20), s.Resweep.Seconds(), s.ResweepSMPs,
			float64(s.TableBytes)/(1<<20), s.Table.Seconds())
	}
	return all, nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func scaleOnce(f *fabric.Fabric) (s scaleSample, err error) {
	s.Switches, s.EndPorts, s.Links = len(f.Switches), len(f.EndPorts), f.Links()
	s.Hosts = len(f.Nodes) - len(f.Switches)
	before := heap()
	sim := simfabric.New(f, simfabric.Options{})
	defer sim.Close()
	at := f.Ports[f.SMPort].GUID
	tr, err := sim.Open(at)
	if err != nil {
		return s, err
	}
	sm := engine.New(tr, engine.Config{Log: slog.New(slog.DiscardHandler), Sweep: -1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cpu0, _ := usage(os.Getpid())
	begin := time.Now()
	go func(sm *engine.Subnet) { done <- sm.Run(ctx) }(sm)
	end := sync.OnceFunc(func() { cancel(); <-done })
	defer end()
	limit := time.After(15 * time.Minute)
	wait := func(sweeps int) error {
		for {
			if x := sm.Snapshot(); x != nil && x.Sweeps >= sweeps && x.State == "Master" {
				return nil
			}
			select {
			case err := <-done:
				done <- err
				return fmt.Errorf("the manager ended: %v", err)
			case <-limit:
				return fmt.Errorf("the subnet does not come up")
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	if err := wait(1); err != nil {
		return s, err
	}
	s.Up = time.Since(begin)
	cpu1, _ := usage(os.Getpid())
	s.CPU = cpu1 - cpu0
	s.SMPs = sim.Counters().Total
	if !sim.AllActive() {
		return s, fmt.Errorf("not all ports are Active")
	}
	s.HeapBoth = heap() - before
	sim.ResetCounters()
	begin = time.Now()
	n := sm.Snapshot().Sweeps
	sm.Resweep(false, "bench")
	if err := wait(n + 1); err != nil {
		return s, err
	}
	s.Resweep = time.Since(begin)
	s.ResweepSMPs = sim.Counters().Total
	if s.TableBytes, s.Table, err = allNodes(sim, s.EndPorts); err != nil {
		return s, err
	}
	// Every 97th end port reaches every 89th by what was programmed.
	eps := sim.EndPorts()
	for i := 0; i < len(eps); i += 97 {
		for j := 0; j < len(eps); j += 89 {
			if eps[i].NodeType != 2 && eps[j].NodeType != 2 && sim.Reaches(eps[i].PortGUID, eps[j].LID) != eps[j].PortGUID {
				return s, fmt.Errorf("%s does not reach %s at LID %s", eps[i].Description, eps[j].Description, eps[j].LID)
			}
		}
	}
	// What is left without the manager is the subnet's, with its tables.
	end()
	sm, tr = nil, nil
	s.HeapSim = heap() - before
	return s, nil
}

// allNodes queries the SA for the NodeRecords of the whole subnet from a host.
func allNodes(sim *simfabric.Sim, want int) (int, time.Duration, error) {
	eps := sim.EndPorts()
	host := eps[slices.IndexFunc(eps, func(e simfabric.EndPort) bool { return e.NodeType == ib.NodeCA })]
	c, err := sim.OpenClient(host.PortGUID, false)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	port, err := c.Port()
	if err != nil {
		return 0, 0, err
	}
	h := mad.NewSA(mad.MethodGetTable, mad.AttrNodeRecord, 1, 0)
	p := transport.Packet{LID: port.SMLID, QPN: 1, Timeout: time.Minute}
	p.SetMessage((&mad.NodeRecord{}).Append(h.Append(nil)), false)
	begin := time.Now()
	if err := c.Send(&p); err != nil {
		return 0, 0, err
	}
	in := make([]transport.Packet, 1)
	for {
		if _, err := c.Recv(context.Background(), in); err != nil {
			return 0, 0, err
		}
		if in[0].Err != nil {
			return 0, 0, in[0].Err
		}
		if !mad.MethodOf(&in[0].MAD).IsResponse() {
			continue
		}
		b := in[0].Bytes()
		if n := (len(b) - mad.SADataOffset) / mad.NodeRecordLen; n != want || mad.StatusOf(&in[0].MAD) != 0 {
			return 0, 0, fmt.Errorf("%d NodeRecords, status 0x%04x, want %d", n, uint16(mad.StatusOf(&in[0].MAD)), want)
		}
		return len(b), time.Since(begin), nil
	}
}
