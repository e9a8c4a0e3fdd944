package sysfs

import (
	"errors"
	"io/fs"

	"ibnetworkd/internal/smallfile"
)

// maxVPD is the most that a PCI function's vital product data can be: addresses in
// its capability have 15 bits (PCI Local Bus 3.0, 6.7; drivers/pci/vpd.c).
const maxVPD = 1 << 15

// pciMellanox is the vendor whose devices VPD is read for.
const pciMellanox = 0x15b3

// VPD reads the vital product data of the PCI function behind an RDMA device; nil
// without an error where it has none. The firmware is asked word by word, which can
// take a second: not for the daemon's loop.
func (f FS) VPD(dev string) ([]byte, error) {
	vendor, err := f.join("class", "infiniband", dev, "device", "vendor")
	if err != nil {
		return nil, err
	}
	// Other vendors' firmware has hung at this question; what is asked for is one
	// vendor's. A device that is not on PCI has no vendor.
	if n, err := number(vendor); err == nil && n != nil && *n != pciMellanox {
		return nil, nil
	}
	p, err := f.join("class", "infiniband", dev, "device", "vpd")
	if err != nil {
		return nil, err
	}
	b, err := smallfile.Read(p, maxVPD)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
