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
	bars  map[serve.Port]bool // of ports that were read
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

// barred reports whether the firmware of a port forbids a subnet manager, or its
// device manages NVSwitches. It is read and logged once.
func (h *umadHost) barred(p serve.Port) bool {
	if b, ok := h.bars[p]; ok {
		return b
	}
	why := ""
	if q, err := h.fs.IBPort(p.Device, int(p.Num)); err == nil && q.CapMask != nil &&
		smctl.BarOfPort(uint64(*q.CapMask), "") != smctl.BarNone {
		why = "the firmware forbids a subnet manager (IsSMDisabled)"
	}
	vpd, err := h.fs.VPD(p.Device)
	if err != nil {
		h.log.Warn("cannot read the PCI VPD: not checked whether the device manages NVSwitches", "ibdev", p.Device, "err", err)
	}
	if smctl.BarOfVPD(vpd) != smctl.BarNone {
		why = "the device manages NVSwitches (SMDL=SW_MNG in its PCI VPD)"
	}
	if why != "" {
		h.log.Warn("port not managed; select it by --port-guid or --device to manage it", "ibdev", p.Device, "port", p.Num, "why", why)
	}
	if h.bars == nil {
		h.bars = map[serve.Port]bool{}
	}
	h.bars[p] = why != ""
	return why != ""
}

// Open implements serve.Host.
func (h *umadHost) Open(p serve.Port) (transport.Transport, error) {
	return umad.Open(h.fs, p.Device, p.Num)
}
