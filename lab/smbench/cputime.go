package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// phase is what a host saw of the SA for some time, and the CPU time that each program took: where
// several programs share the processors, the rate alone does not tell.
type phase struct {
	Took    time.Duration
	Answers int
	Slowest time.Duration            // answer
	CPU     map[string]time.Duration // by programs
}

// rate is the answers a second.
func (p *phase) rate() int { return int(float64(p.Answers) / max(p.Took.Seconds(), 1e-9)) }

func (p *phase) String() string {
	var l []string
	for _, name := range slices.Sorted(maps.Keys(p.CPU)) {
		l = append(l, fmt.Sprintf("%s %.2f", name, p.CPU[name].Seconds()/p.Took.Seconds()))
	}
	return fmt.Sprintf("%d answers a second, the slowest after %v, each %.1f us of the master's CPU; CPU seconds a second: %s", p.rate(),
		p.Slowest.Round(10*time.Microsecond), float64(p.CPU[masterCPU].Microseconds())/float64(max(1, p.Answers)), strings.Join(l, ", "))
}

// sumOf joins phases that follow each other.
func sumOf(l []phase) (sum phase) {
	sum.CPU = map[string]time.Duration{}
	for i := range l {
		sum.Took += l[i].Took
		sum.Answers += l[i].Answers
		sum.Slowest = max(sum.Slowest, l[i].Slowest)
		for k, v := range l[i].CPU {
			sum.CPU[k] += v
		}
	}
	return sum
}

// programs are the processes whose CPU time is counted, by a name.
type programs map[string][]int

const (
	masterCPU, standbyCPU = "master", "standbys"
	ownCPU, otherCPU      = "simulator and hosts", "other programs"
)

// cpu is the CPU time so far of each, and of all others on the machine.
func (p programs) cpu() map[string]time.Duration {
	out, all := map[string]time.Duration{}, time.Duration(0)
	for name, pids := range p {
		for _, pid := range pids {
			t, _ := usage(pid)
			out[name] += t
			all += t
		}
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if s, err := fs.Stat(); err == nil {
			c := &s.CPUTotal
			busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
			out[otherCPU] = time.Duration(busy*float64(time.Second)) - all
		}
	}
	return out
}

// since is what the programs have used since an earlier cpu.
func (p programs) since(was map[string]time.Duration) (now, used map[string]time.Duration) {
	now, used = p.cpu(), map[string]time.Duration{}
	for k, v := range now {
		used[k] = max(v-was[k], 0)
	}
	return now, used
}

// pausesOf reads from an ibnetsm how long requests had to wait for its own work.
func pausesOf(socket string) (engine.Pauses, error) {
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := control.Ask(ctx, socket, control.AskStatus, &b); err != nil {
		return engine.Pauses{}, err
	}
	var xs []engine.Snapshot
	if err := json.Unmarshal(b.Bytes(), &xs); err != nil || len(xs) != 1 {
		return engine.Pauses{}, fmt.Errorf("status of %s: %d ports: %w", socket, len(xs), err)
	}
	return xs[0].Counters.Pauses, nil
}

// pausesBetween describes what was added to pauses.
func pausesBetween(was, now *engine.Pauses) string {
	var l []string
	n := uint64(0)
	for i := len(now.AtMost) - 1; i > 0; i-- {
		n += now.AtMost[i] - was.AtMost[i]
		l = append(l, fmt.Sprintf("%d beyond %v", n, engine.PauseBounds[i-1]))
	}
	slices.Reverse(l)
	s := strings.Join(l, ", ")
	if now.Longest > was.Longest {
		s += fmt.Sprintf("; the longest %v", now.Longest.Round(10*time.Microsecond))
	}
	return s
}

// asking keeps 64 requests for paths under way.
type asking struct {
	mu      sync.Mutex
	seconds []phase
	end     func()
}

func keepAsking(sim *simfabric.Sim, host string, f *fabric.Fabric, counted programs) (*asking, error) {
	c, err := client(sim, host)
	if err != nil {
		return nil, err
	}
	port, err := c.Port()
	if err != nil {
		return nil, err
	}
	q := &asking{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	q.end = func() { cancel(); <-done; c.Close() }
	self := ib.MakeGID(ib.DefaultPrefix, sim.FindHost(host)[0].PortGUID)
	fill := func(n int) (p transport.Packet) {
		p.LID, p.QPN, p.Timeout = port.SMLID, 1, time.Second
		h := mad.NewSA(mad.MethodGet, mad.AttrPathRecord, uint32(n), mad.CompPRDGID|mad.CompPRSGID|mad.CompPRNumbPath|mad.CompPRReversible)
		to := ib.MakeGID(ib.DefaultPrefix, f.Ports[f.EndPorts[n*97%len(f.EndPorts)]].GUID)
		rec := mad.PathRecord{SGID: self, DGID: to, NumbPath: 1, Reversible: true}
		p.SetMessage(rec.Append(h.Append(p.MAD[:0])), false)
		return p
	}
	go func() {
		defer close(done)
		const window = 64
		in := make([]transport.Packet, window)
		var sent [1 << 14]time.Time // of the last requests
		n, now, since := 0, phase{}, time.Now()
		cpu := counted.cpu()
		for open := 0; ctx.Err() == nil; {
			for ; open < window; open++ {
				p := fill(n)
				sent[n%len(sent)] = time.Now()
				if n++; c.Send(&p) != nil {
					return
				}
			}
			k, err := c.Recv(ctx, in)
			if err != nil {
				return
			}
			for i := range in[:k] {
				if in[i].Err != nil || mad.MethodOf(&in[i].MAD).IsResponse() {
					open--
				}
				if in[i].Err == nil && mad.StatusOf(&in[i].MAD) == 0 {
					now.Answers++
					now.Slowest = max(now.Slowest, time.Since(sent[uint32(mad.TIDOf(&in[i].MAD))%uint32(len(sent))]))
				}
			}
			if now.Took = time.Since(since); now.Took >= time.Second {
				cpu, now.CPU = counted.since(cpu)
				q.mu.Lock()
				q.seconds = append(q.seconds, now)
				q.mu.Unlock()
				now, since = phase{}, time.Now()
			}
		}
	}()
	return q, nil
}

func (q *asking) close() { q.end() }

// reset gives each second since the last, and begins again.
func (q *asking) reset() []phase {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.seconds
	q.seconds = nil
	return l
}
