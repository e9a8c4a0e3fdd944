package probe

import (
	"errors"
	"fmt"

	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/smctl"
)

// Inspect reports whether the kernel or the firmware bars subnet managers from a port,
// and whether that is final: modules are loaded later, and functions get QP0 by a
// firmware update. BarUnknown comes with the error.
func Inspect(fs sysfs.FS, ibdev string, port int) (bar smctl.Bar, final bool, err error) {
	vpd, err := fs.VPD(ibdev)
	if err != nil {
		return smctl.BarUnknown, false, fmt.Errorf("read the PCI VPD of %s: %w", ibdev, err)
	}
	if bar := smctl.BarOfVPD(vpd); bar != smctl.BarNone {
		return bar, true, nil
	}
	u, err := find(fs, ibdev, port)
	switch {
	case errors.Is(err, ErrNoUmad) || errors.Is(err, errNoDevice):
		return smctl.BarNone, false, nil
	case err != nil:
		return smctl.BarNone, false, err
	case u.ISSM == "":
		// ib_umad makes an issm device for each port that carries subnet
		// management packets (rdma_cap_ib_smi).
		return smctl.BarNoQP0, false, nil
	}
	return smctl.BarNone, true, nil
}
