package main

import (
	"context"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
)

// saSample is the rate of one kind of query against one manager.
type saSample struct {
	SM, Query   string
	PerSecond   float64
	CPUPerQuery time.Duration // of the manager
}

// saWindow is how many requests are under way: enough that the managers and not
// the switching between processes set the rate.
const saWindow = 512

// benchSA asks each manager for single PathRecords and PortInfoRecords, with
// many requests under way.
func benchSA(t *tools, o options) ([]saSample, error) {
	name := "ft2-108"
	if len(o.names) > 0 {
		name = o.names[0]
	}
	var all []saSample
	fmt.Fprintf(out, "SA queries, %d under way; %s, simulator %s; best of %d\n", saWindow, name, o.sim, o.runs)
	best := map[string]saSample{}
	for range o.runs {
		for _, sm := range o.sms {
			l, err := saOnce(t, o, sm, name)
			if err != nil {
				return all, fmt.Errorf("%s: %w", sm, err)
			}
			for _, s := range l {
				all = append(all, s)
				if b, ok := best[sm+s.Query]; !ok || s.PerSecond > b.PerSecond {
					best[sm+s.Query] = s
				}
			}
		}
	}
	for _, q := range []string{"PathRecord", "PortInfoRecord"} {
		for _, sm := range o.sms {
			b := best[sm+q]
			fmt.Fprintf(out, "%-16s %-8s %9.0f/s  %8.1f us CPU a query\n", q, sm, b.PerSecond, float64(b.CPUPerQuery.Nanoseconds())/1e3)
		}
		if a, b := best["opensm"+q], best["ibnetsm"+q]; a.PerSecond > 0 && b.PerSecond > 0 {
			fmt.Fprintf(out, "%-16s %-8s %9.2f    %8.2f\n", q, "ratio", b.PerSecond/a.PerSecond, ratio(b.CPUPerQuery, a.CPUPerQuery))
		}
	}
	return all, nil
}

func saOnce(t *tools, o options, sm, name string) ([]saSample, error) {
	r, err := t.start(o.sim, name)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	m, err := r.run(sm, "H-00001", 5, false)
	if err != nil {
		return nil, err
	}
	if _, err := m.waitUp(1, time.Minute); err != nil {
		return nil, err
	}
	time.Sleep(300 * time.Millisecond) // opensm says it is up before its SA answers
	c, err := ibsim.Open(ibsim.Options{Sock: r.sock, Host: "H-00002"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	port, err := c.Port()
	if err != nil {
		return nil, err
	}
	f, err := fabricByName(name)
	if err != nil {
		return nil, err
	}
	var gids []ib.GID
	for _, p := range f.EndPorts {
		gids = append(gids, ib.MakeGID(ib.DefaultPrefix, f.Ports[p].GUID))
	}
	self := ib.MakeGID(ib.DefaultPrefix, port.PortGUID)
	var l []saSample
	for _, q := range []struct {
		name string
		fill func(i int, p *transport.Packet)
	}{
		{"PathRecord", func(i int, p *transport.Packet) {
			h := mad.NewSA(mad.MethodGet, mad.AttrPathRecord, uint32(i), mad.CompPRDGID|mad.CompPRSGID|mad.CompPRNumbPath|mad.CompPRReversible)
			rec := mad.PathRecord{SGID: self, DGID: gids[i%len(gids)], NumbPath: 1, Reversible: true}
			p.SetMessage(rec.Append(h.Append(p.MAD[:0])), false)
		}},
		{"PortInfoRecord", func(i int, p *transport.Packet) {
			h := mad.NewSA(mad.MethodGet, mad.AttrPortInfoRecord, uint32(i), mad.CompPIRLID)
			rec := mad.PortInfoRecord{LID: port.SMLID}
			p.SetMessage(rec.Append(h.Append(p.MAD[:0])), false)
		}},
	} {
		cpu0, _ := usage(m.cmd.Process.Pid)
		n, d, err := ask(c, port.SMLID, saWindow, 2*time.Second, q.fill)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.name, err)
		}
		cpu1, _ := usage(m.cmd.Process.Pid)
		l = append(l, saSample{sm, q.name, float64(n) / d.Seconds(), (cpu1 - cpu0) / time.Duration(max(n, 1))})
	}
	return l, nil
}

// ask keeps window requests under way for a time and counts the good answers.
func ask(c transport.Transport, sm ib.LID, window int, d time.Duration, fill func(int, *transport.Packet)) (int, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d+10*time.Second)
	defer cancel()
	in := make([]transport.Packet, window)
	begin := time.Now()
	sent, good, open := 0, 0, 0
	for {
		over := time.Since(begin) > d
		for open < window && !over {
			var p transport.Packet
			p.LID, p.QPN, p.Timeout, p.Retries = sm, 1, time.Second, 3
			fill(sent, &p)
			if err := c.Send(&p); err != nil {
				return 0, 0, err
			}
			sent++
			open++
		}
		if over && open == 0 {
			return good, time.Since(begin), nil
		}
		n, err := c.Recv(ctx, in)
		if err != nil {
			return 0, 0, err
		}
		for i := range in[:n] {
			p := &in[i]
			switch {
			case p.Err != nil:
				return 0, 0, p.Err
			case !mad.MethodOf(&p.MAD).IsResponse():
				continue
			case mad.StatusOf(&p.MAD) != 0:
				return 0, 0, fmt.Errorf("status 0x%04x", uint16(mad.StatusOf(&p.MAD)))
			}
			good++
			open--
		}
	}
}
