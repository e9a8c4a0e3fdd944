package lab

import (
	"fmt"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/mad"
)

// Fabric is the simulated part of a Net's fabric for its script: what is done to it
// here stands in the timeline.
type Fabric struct {
	*simfabric.Sim
	mark func(at time.Time, text string, bad bool)
}

// do does something and marks the time at which it began.
func (f *Fabric) do(what string, act func() error) error {
	at := time.Now()
	err := act()
	if err != nil {
		what += ": " + err.Error()
	}
	f.mark(at, what, err != nil)
	return err
}

// node is what a person calls a node.
func (f *Fabric) node(guid ib.GUID) string {
	for _, e := range f.EndPorts() {
		if e.NodeGUID == guid {
			if name := strings.TrimSpace(e.Description); name != "" {
				return name
			}
			break
		}
	}
	return guid.String()
}

func (f *Fabric) port(guid ib.GUID, num uint8) string {
	return fmt.Sprintf("%s/%d", f.node(guid), num)
}

// Cut is Sim.Cut: it takes the cable at a port out.
func (f *Fabric) Cut(guid ib.GUID, num uint8) error {
	return f.do("cut the cable at "+f.port(guid, num), func() error { return f.Sim.Cut(guid, num) })
}

// Restore is Sim.Restore: it puts the cable back in.
func (f *Fabric) Restore(guid ib.GUID, num uint8) error {
	return f.do("join the cable at "+f.port(guid, num), func() error { return f.Sim.Restore(guid, num) })
}

// Flap is Sim.Flap: it takes a cable out and puts it in at once.
func (f *Fabric) Flap(guid ib.GUID, num uint8) error {
	return f.do("flap "+f.port(guid, num), func() error { return f.Sim.Flap(guid, num) })
}

// Move is Sim.Move: it puts a cable into another port.
func (f *Fabric) Move(guid ib.GUID, num uint8, to ib.GUID, toNum uint8) error {
	return f.do("move the cable at "+f.port(guid, num)+" to "+f.port(to, toNum), func() error { return f.Sim.Move(guid, num, to, toNum) })
}

// PowerOff is Sim.PowerOff: it stops a node.
func (f *Fabric) PowerOff(guid ib.GUID) error {
	return f.do("power off "+f.node(guid), func() error { return f.Sim.PowerOff(guid) })
}

// PowerOn is Sim.PowerOn: it starts a node.
func (f *Fabric) PowerOn(guid ib.GUID) error {
	return f.do("power on "+f.node(guid), func() error { return f.Sim.PowerOn(guid) })
}

// Reboot is Sim.Reboot: it stops and starts a node.
func (f *Fabric) Reboot(guid ib.GUID) error {
	return f.do("reboot "+f.node(guid), func() error { return f.Sim.Reboot(guid) })
}

// Slow is Sim.Slow: it makes a node take some time for each answer.
func (f *Fabric) Slow(guid ib.GUID, d time.Duration) error {
	return f.do(fmt.Sprintf("answers after %v: %s", d, f.node(guid)), func() error { return f.Sim.Slow(guid, d) })
}

// Mute is Sim.Mute: it makes a node answer no SMP, or answer again.
func (f *Fabric) Mute(guid ib.GUID, on bool) error {
	what := "mute "
	if !on {
		what = "unmute "
	}
	return f.do(what+f.node(guid), func() error { return f.Sim.Mute(guid, on) })
}

// SetLoss is Sim.SetLoss: it changes the probability of loss.
func (f *Fabric) SetLoss(p float64) {
	_ = f.do(fmt.Sprintf("loss of %g %%", 100*p), func() error { f.Sim.SetLoss(p); return nil })
}

// SetDescription is Sim.SetDescription: it renames a node.
func (f *Fabric) SetDescription(guid ib.GUID, desc string) error {
	return f.do(fmt.Sprintf("rename %s to %q", f.node(guid), desc), func() error { return f.Sim.SetDescription(guid, desc) })
}

// SetPortInfo is Sim.SetPortInfo: it changes what a port announces.
func (f *Fabric) SetPortInfo(guid ib.GUID, num uint8, change func(*mad.PortInfo)) error {
	return f.do("change the PortInfo of "+f.port(guid, num), func() error { return f.Sim.SetPortInfo(guid, num, change) })
}

// SetErrors is Sim.SetErrors: it changes the error counters of a port.
func (f *Fabric) SetErrors(guid ib.GUID, num uint8, change func(*mad.PortCounters)) error {
	return f.do("change the error counters of "+f.port(guid, num), func() error { return f.Sim.SetErrors(guid, num, change) })
}

// SetNodeInfo is Sim.SetNodeInfo: it changes what a node announces.
func (f *Fabric) SetNodeInfo(guid ib.GUID, change func(*mad.NodeInfo)) error {
	return f.do("change the NodeInfo of "+f.node(guid), func() error { return f.Sim.SetNodeInfo(guid, change) })
}

// SetSwitchInfo is Sim.SetSwitchInfo: it changes what a switch announces.
func (f *Fabric) SetSwitchInfo(guid ib.GUID, change func(*mad.SwitchInfo)) error {
	return f.do("change the SwitchInfo of "+f.node(guid), func() error { return f.Sim.SetSwitchInfo(guid, change) })
}
