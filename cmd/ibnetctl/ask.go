package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

// askLimit bounds the questions to the subnet manager of one port.
const askLimit = 4 * time.Second

// askManagers checks whether the subnet manager of each Active InfiniBand port
// answers: an Active port proves only that one once did.
func askManagers(ctx context.Context, s *link.Snapshot) map[string]diagnose.Asked {
	out := map[string]diagnose.Asked{}
	for d, p := range s.Ports() {
		if p.Layer == ib.LinkLayerInfiniBand && p.State >= ib.PortActive && p.SMLID != 0 {
			out[fmt.Sprintf("%s/%d", d.Name, p.Num)] = askManager(ctx, d.Name, p)
		}
	}
	return out
}

func askManager(ctx context.Context, dev string, p *link.Port) diagnose.Asked {
	if os.Geteuid() != 0 {
		return diagnose.Asked{Not: "only root may query it"}
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	u, err := probe.Open(ctx, dev, p.Num)
	if err != nil {
		return diagnose.Asked{Not: err.Error()}
	}
	defer u.Close()
	var a diagnose.Asked
	sms, err := probe.AskLID(ctx, u, p.SMLID)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return diagnose.Asked{Not: err.Error()}
	}
	if len(sms) > 0 {
		m := sms[0]
		a.SM = &smctl.Master{GUID: m.GUID.String(), LID: uint16(m.LID), Priority: m.Priority, State: m.State.String(), Node: m.Node}
	}
	a.SA, err = probe.AskSA(ctx, u, p.SMLID)
	if err != nil && a.SM == nil && !errors.Is(err, context.DeadlineExceeded) {
		return diagnose.Asked{Not: err.Error()}
	}
	return a
}

// nameMasters finds the master of each port for which the daemon has not done so: it
// does that only for ports that it manages.
func (a *app) nameMasters(ctx context.Context, sms []smctl.Status) {
	if a.root != "" || a.recorded != "" {
		return
	}
	snap := (*link.Snapshot)(nil)
	for i := range sms {
		s := &sms[i]
		if s.Master != nil {
			continue
		}
		if snap == nil {
			sys, err := a.observe(ctx)
			if err != nil {
				s.MasterUnknown = "not asked: " + err.Error()
				continue
			}
			snap = sys.snap
		}
		d, ok := snap.Device(s.IBDevice)
		if !ok {
			continue
		}
		for j := range d.Ports {
			p := &d.Ports[j]
			if p.Num != s.Port {
				continue
			}
			if p.State < ib.PortActive || p.SMLID == 0 {
				s.MasterUnknown = fmt.Sprintf("none has configured the port, which is %v", p.State)
				continue
			}
			switch got := askManager(ctx, d.Name, p); {
			case got.SM != nil:
				s.Master = got.SM
			case got.Not != "":
				s.MasterUnknown = "not asked: " + got.Not
			default:
				s.MasterUnknown = fmt.Sprintf("the subnet manager at LID %d does not answer", uint16(p.SMLID))
			}
		}
	}
}

// masterWords names a subnet manager, and its state if that is not master.
func masterWords(m *smctl.Master) string {
	if m.State == "Master" {
		return diagnose.Master(m)
	}
	return diagnose.Master(m) + ", " + m.State
}

// knowManagers notes at each port what is known of its subnet manager, so that next
// steps name the place that counts.
func knowManagers(in *diagnose.Input) {
	for d, p := range in.Snapshot.Ports() {
		for _, s := range in.SMs {
			if s.IBDevice == d.Name && s.Port == p.Num {
				p.Manager = api.ManagerOf(s, in.Units)
			}
		}
		switch got, asked := in.Asked[fmt.Sprintf("%s/%d", d.Name, p.Num)]; {
		case !asked || got.Not != "":
		case got.SM == nil:
			p.Manager.Silent = true
		default:
			p.Manager.Silent, p.Manager.Host = false, got.SM.Node
			if g, err := ib.ParseGUID(got.SM.GUID); err == nil {
				p.Manager.GUID = g
			}
		}
	}
}
