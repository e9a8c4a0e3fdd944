// Package smfeed hands the InfiniBand ports, with what their units ask of a subnet
// manager, from the daemon's loop to the controller of the subnet managers, and what
// the controller knows back to the loop's snapshots.
package smfeed

import (
	"context"
	"slices"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/worker"
)

// interval is how often ports with a [SubnetManager] are read again: another subnet
// manager that takes a port over makes no event.
const interval = 10 * time.Second

// Feed gives the ports of each View to the controller, if they have changed.
type Feed struct {
	update func([]worker.Port)
	read   func()
	last   []worker.Port
	fed    bool
	// managed gets each change of whether a unit asks for a subnet manager.
	managed chan bool
	any     bool
}

// New makes a Feed. update gets the ports, read has the RDMA ports read again;
// neither may block.
func New(update func([]worker.Port), read func()) *Feed {
	return &Feed{update: update, read: read, managed: make(chan bool, 1)}
}

// portIsSM is the bit of the capability mask that says that a subnet manager
// runs on the port (IBTA 14.2.5.6, PortInfo:CapabilityMask bit 1).
const portIsSM = 1 << 1

// Ports are the InfiniBand ports with their policies. A port without a GUID is left
// out: its subnet manager would have no name.
func Ports(v daemon.View) (ports []worker.Port) {
	for d, p := range v.Snapshot.Ports() {
		if p.GUID.IsZero() {
			continue
		}
		w := worker.Port{Port: smctl.Port{GUID: p.GUID, IBDev: d.Name, Num: p.Num, Present: true, LinkLayer: p.Layer,
			State: p.State, Phys: p.Phys, LID: p.LID, SMLID: p.SMLID, IsSM: p.CapMask&portIsSM != 0,
			Barred: smctl.BarOfPort(p.CapMask, d.Protocol)}}
		if p.Layer == ib.LinkLayerInfiniBand {
			w.Policy = smctl.PolicyOf(v.Governing.Ports[link.PortName{IBDevice: d.Name, Port: p.Num}].Last())
		}
		ports = append(ports, w)
	}
	return ports
}

// Update takes what the loop has observed. It never blocks, and belongs to one
// goroutine.
func (f *Feed) Update(v daemon.View) {
	if v.Snapshot == nil {
		return
	}
	ports := Ports(v)
	infiniBand := func(p worker.Port) bool { return p.LinkLayer == ib.LinkLayerInfiniBand }
	if len(f.last) == 0 && !slices.ContainsFunc(ports, infiniBand) {
		ports = nil // a host with Ethernet alone; a port that turns Ethernet is one to stop
	}
	same := f.fed && slices.Equal(ports, f.last)
	f.last, f.fed = ports, true
	if managed := slices.ContainsFunc(ports, func(p worker.Port) bool { return p.Policy.Manage != smctl.ManageNo }); managed != f.any {
		f.any = managed
		daemon.Replace(f.managed, managed)
	}
	if !same {
		f.update(ports)
	}
}

// Run has the ports read again while a unit asks for a subnet manager, until ctx
// ends. It wakes nothing while none does.
func (f *Feed) Run(ctx context.Context) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case managed := <-f.managed:
			if managed {
				t.Reset(interval)
			} else {
				t.Stop()
			}
		case <-t.C:
			f.read()
		}
	}
}
