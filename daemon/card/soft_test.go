package card

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// A link that goes while the module is loaded gets no soft device under its name.
func TestSoftAfterLoad(t *testing.T) {
	kerneltest.Isolate(t)
	if c, err := rdmanl.Dial(); !errors.Is(err, rdmanl.ErrNoRDMA) {
		if err == nil {
			_ = c.Close()
		}
		t.Skip("the module of RDMA is loaded: a device could be made")
	}
	loads := 0
	e := newExecutor(sysfs.New(t.TempDir()), modules.Loader{Ask: func(context.Context, string) (bool, error) {
		loads++
		return true, exec.Command("ip", "link", "set", "lo", "name", "was0").Run()
	}})
	defer e.rest()
	err := e.apply(t.Context(), roce.AddSoft{On: link.Target{Link: "lo", Ifindex: 1}, Name: "rxe9", Driver: units.SoftRXE})
	if !errors.Is(err, unix.ENODEV) || loads != 1 {
		t.Errorf("after %d loads: %v", loads, err)
	}
}
