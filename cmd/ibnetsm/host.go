package main

import (
	"errors"
	"io/fs"
	"log/slog"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/sm/serve"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
	"ibnetworkd/sm/transport/umad"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

// simHost is the one port that the simulator's environment names.
type simHost struct{}

func (simHost) Ports() ([]serve.Port, error) {
	return []serve.Port{{Device: "ibsim0", Num: 1}}, nil
}

func (simHost) Open(serve.Port) (transport.Transport, error) { return ibsim.Open(ibsim.Options{}) }

// umadHost is the kernel's InfiniBand ports. Ethernet ports (RoCE, iWARP) have
// MAD devices too, and no subnet.
type umadHost struct {
	fs sysfs.FS
	// named is set if ports were selected by name; without names, ports that must
	// not have a subnet manager are left out.
	named bool
	log   *slog.Logger
	// bars are the ports that were read, logged the reason logged last.
	bars   map[serve.Port]bool
	logged map[serve.Port]string
}

func (h *umadHost) Ports() ([]serve.Port, error) {
	l, err := umad.List(h.fs)
	if errors.Is(err, sysfs.ErrNoUMAD) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // not loaded yet
	}
	if err != nil {
		return nil, err
	}
	var out []serve.Port
	for _, p := range l {
		if p.LinkLayer != ib.LinkLayerEthernet && p.PortGUID != 0 {
			q := serve.Port{Device: p.Device, Num: p.Num, GUID: p.PortGUID}
			if !h.named && h.barred(q) {
				continue
			}
			out = append(out, q)
		}
	}
	return out, nil
}

// barred reports whether a port has to be left out: its firmware forbids a subnet
// manager, its device manages NVSwitches, or that cannot be read. Only what was read
// is remembered; each reason is logged once.
func (h *umadHost) barred(p serve.Port) bool {
	if b, ok := h.bars[p]; ok {
		return b
	}
	if h.bars == nil {
		h.bars, h.logged = map[serve.Port]bool{}, map[serve.Port]string{}
	}
	why, err := h.why(p)
	if err != nil {
		why = "it is not known whether a subnet manager may run on it: " + err.Error()
	} else {
		h.bars[p] = why != ""
	}
	if why != "" && h.logged[p] != why {
		h.log.Warn("the port is left out; to use it nevertheless: --port-guid or --device", "ibdev", p.Device, "port", p.Num, "why", why)
	}
	h.logged[p] = why
	return why != ""
}

// why is the reason why no subnet manager may run on a port; empty if it may.
func (h *umadHost) why(p serve.Port) (string, error) {
	q, err := h.fs.IBPort(p.Device, int(p.Num))
	if err != nil {
		return "", err
	}
	bar, _, err := probe.Inspect(h.fs, p.Device, int(p.Num))
	switch {
	case err != nil:
		return "", err
	case bar == smctl.BarNVSwitch:
		return "the device manages NVSwitches (SMDL=SW_MNG in its PCI VPD)", nil
	case q.CapMask != nil && smctl.BarOfPort(uint64(*q.CapMask), "") == smctl.BarSMDisabled:
		return "the firmware forbids a subnet manager (IsSMDisabled)", nil
	}
	return "", nil
}

func (h *umadHost) Open(p serve.Port) (transport.Transport, error) {
	t, err := umad.Open(h.fs, p.Device, p.Num)
	if err != nil {
		return nil, err
	}
	if n, of := t.SendAgents(); n < of {
		h.log.Warn("the kernel registers fewer agents for SMPs: sweeps of a fabric that loses SMPs may take longer",
			"ibdev", p.Device, "port", p.Num, "agents", n, "of", of)
	}
	return t, nil
}
