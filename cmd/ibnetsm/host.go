package main

import (
	"errors"
	"io/fs"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/sm/serve"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
	"ibnetworkd/sm/transport/umad"
)

// simHost is the one port that the simulator's environment names.
type simHost struct{}

func (simHost) Ports() ([]serve.Port, error) {
	return []serve.Port{{Device: "ibsim0", Num: 1}}, nil
}

func (simHost) Open(serve.Port) (transport.Transport, error) { return ibsim.Open(ibsim.Options{}) }

// umadHost is the kernel's InfiniBand ports. Ethernet ports (RoCE, iWARP) have
// MAD devices too, and no subnet.
type umadHost struct{ fs sysfs.FS }

func (h umadHost) Ports() ([]serve.Port, error) {
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
			out = append(out, serve.Port{Device: p.Device, Num: p.Num, GUID: p.PortGUID})
		}
	}
	return out, nil
}

func (h umadHost) Open(p serve.Port) (transport.Transport, error) {
	return umad.Open(h.fs, p.Device, p.Num)
}
