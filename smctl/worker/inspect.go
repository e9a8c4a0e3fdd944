package worker

import (
	"errors"
	"fmt"

	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/smctl"
)

// Inspect says whether the kernel or the firmware bars subnet managers from a port,
// and whether that is the last word: modules are loaded later, and functions get
// QP0 by a firmware update.
func Inspect(fs sysfs.FS, ibdev string, port int) (bar smctl.Bar, final bool, err error) {
	vpd, err := fs.VPD(ibdev)
	if err != nil {
		return smctl.BarUnknown, false, fmt.Errorf("read the PCI VPD of %s: %w", ibdev, err)
	}
	if bar := smctl.BarOfVPD(vpd); bar != smctl.BarNone {
		return bar, true, nil
	}
	us, err := fs.UMADs()
	if errors.Is(err, sysfs.ErrNoUMAD) {
		return smctl.BarNone, false, nil
	}
	if err != nil {
		return smctl.BarNone, false, err
	}
	for _, u := range us {
		if u.IBDev == ibdev && u.Port == port {
			// ib_umad makes an issm device for each port that carries subnet
			// management packets (rdma_cap_ib_smi).
			if u.ISSM == "" {
				return smctl.BarNoQP0, false, nil
			}
			return smctl.BarNone, true, nil
		}
	}
	return smctl.BarNone, false, nil
}
