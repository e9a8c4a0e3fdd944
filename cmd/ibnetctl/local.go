package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/daemon/dhcpclient"
	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/internal/version"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// stateDir is where the daemon keeps its record.
const stateDir = "/run/ibnetworkd"

// system is one reading of a system, live or captured, and what the daemon would
// make of it.
type system struct {
	snap   *link.Snapshot
	set    *units.Set
	record *link.Record
	result plan.Result
	live   bool // this host's, now
}

// observe reads the live system, or the recorded one. It changes nothing.
func (a *app) observe(context.Context) (*system, error) {
	if a.recorded != "" {
		sys, _, err := readCapture(a.recorded, "")
		return sys, err
	}
	set := a.loadUnits()
	rec, err := a.record()
	if err != nil {
		return nil, err
	}
	snap, err := daemon.Observe("/", set, rec)
	if err != nil {
		return nil, err
	}
	a.inform(snap)
	sys := newSystem(snap, set, rec)
	sys.live = a.root == ""
	return sys, nil
}

// inform adds what only the daemon knows of links: of one that runs what it reports, of one that does not the
// leases with which it would begin.
func (a *app) inform(snap *link.Snapshot) {
	if r := a.report(); r != nil {
		r.Inform(snap)
		return
	}
	dhcpclient.New(slog.New(slog.DiscardHandler), a.path(filepath.Join(stateDir, dhcpclient.Dir)), "", func(map[int]bool) {}).Complete(snap)
}

// record reads what the daemon has noted as its own; it is empty where there is
// none, or none that can be read.
func (a *app) record() (*link.Record, error) {
	rec := &link.Record{}
	if text, err := os.ReadFile(a.path(stateDir + "/" + daemon.RecordFile)); err == nil {
		if r, err := link.DecodeRecord(text); err == nil {
			rec = r
		}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	return rec, nil
}

func newSystem(snap *link.Snapshot, set *units.Set, rec *link.Record) *system {
	return &system{snap: snap, set: set, record: rec,
		result: plan.Make(plan.Input{Snapshot: snap, Units: set, Record: rec})}
}

// describe is what the daemon would say of the system. why says for what reason
// it did not say it itself.
func (s *system) describe(why string) *api.Description {
	d := &api.Description{Schema: api.DescriptionSchema, Version: version.String(), Source: "observed",
		Links: s.result.Links, Ports: s.result.Ports, SubnetManagers: s.subnetManagers(why)}
	if d.Links == nil {
		d.Links = []link.Status{}
	}
	if d.Ports == nil {
		d.Ports = []link.PortStatus{}
	}
	for _, p := range s.set.Problems {
		d.Problems = append(d.Problems, p.String())
	}
	d.Notices = s.notices()
	d.Online = api.OnlineState(slices.Values(d.Links), link.Awaited(s.set))
	return d
}

// phaseUnknown is the phase of a subnet manager that the daemon does not report: one that
// it started may still be running.
const phaseUnknown smctl.Phase = "unknown"

// stateUnknown is printed for the state of a worker where systemd does not tell.
const stateUnknown = "state not known"

// subnetManagers returns for each InfiniBand port what its unit wants. What is done
// about it only the daemon knows, and why says for what reason it does not answer.
func (s *system) subnetManagers(why string) []smctl.Status {
	out := []smctl.Status{}
	for d, p := range s.snap.Ports() {
		if p.Layer != ib.LinkLayerInfiniBand {
			continue
		}
		pol := smctl.PolicyOf(s.unitOfPort(d, p))
		st := smctl.Status{PortGUID: p.GUID.String(), IBDevice: d.Name, Port: p.Num, Manage: pol.Manage.String(),
			Engine: pol.Engine.String(), Unit: pol.Unit,
			Phase: phaseUnknown, Reason: why}
		out = append(out, st)
	}
	return out
}

// unitOfPort is the unit whose [SubnetManager] counts for a port.
func (s *system) unitOfPort(d *link.Device, p *link.Port) *units.Unit {
	return s.result.Governing.Ports[link.PortName{IBDevice: d.Name, Port: p.Num}].Last()
}

// notices are those about units and the host as a whole, but for what is only true if
// it lasts: there is one observation.
func (s *system) notices() []link.Notice {
	return slices.DeleteFunc(link.Notices(s.snap, s.set, s.result.Governing), func(n link.Notice) bool { return n.Settle })
}

func (s *system) report() link.Report {
	return link.Report{Links: s.result.Links, Ports: s.result.Ports, Notices: s.notices()}
}
