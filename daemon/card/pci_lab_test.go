package card

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/roce"
)

// The PCI core's rules of virtual functions, and what the executor makes of them, on
// a PCI device of QEMU that has some.
func TestVirtualFunctionsOfPCI(t *testing.T) {
	const total = 4
	lab.Run(t, lab.Config{Machine: lab.QEMU, Userland: lab.Debian, HCAs: -1, VFs: total}, func(g *lab.G) {
		g.Sh("modprobe nvme && modprobe pci-stub")
		sys := sysfs.New("/")
		e := newExecutor(sys, modules.Loader{})
		var err error
		if e.rt, err = rtnl.Dial(); err != nil {
			g.Fatal(err)
		}
		defer e.rest()
		pf := strings.TrimSpace(g.Sh("for d in /sys/bus/pci/devices/*/sriov_totalvfs; do basename $(dirname $d); done"))
		// are reads the functions that exist.
		are := func() []string {
			_, s, err := sys.BusDevice("pci", pf)
			if err != nil || s == nil || s.TotalVFs != total || s.NumVFs != len(s.VFs) {
				g.Fatalf("%s: %+v, %v", pf, s, err)
			}
			return s.VFs
		}
		set := func(n int) error {
			old, _ := sys.NumVFs("pci", pf)
			return e.setVFs(roce.SetVFs{Bus: "pci", Dev: pf, Count: n, Old: old})
		}
		driver := func(dev string) string {
			b, _, err := sys.BusDevice("pci", dev)
			testkit.NoError(g, err)
			return b.Driver
		}
		// A device without a driver has no functions.
		g.Wait("the driver", 20*time.Second, func() bool { return driver(pf) == "nvme" })
		if len(are()) != 0 {
			g.Fatalf("%q at the start", are())
		}

		// From one number to another only through none, which the executor does.
		if err := set(2); err != nil || len(are()) != 2 {
			g.Fatalf("2 functions: %q, %v", are(), err)
		}
		if err := sys.SetNumVFs("pci", pf, 3); !errors.Is(err, unix.EBUSY) {
			g.Errorf("from 2 functions to 3 at once: %v", err)
		}
		if err := set(3); err != nil || len(are()) != 3 {
			g.Errorf("3 functions: %q, %v", are(), err)
		}
		// More than there can be: the former number is back.
		err = set(total + 1)
		var not *NotTaken
		if !errors.As(err, &not) || len(are()) != 3 || !strings.Contains(err.Error(), "the former number 3 is back") {
			g.Errorf("%d functions: %q, %v", total+1, are(), err)
		}
		if err := set(0); err != nil || len(are()) != 0 {
			g.Errorf("no functions: %q, %v", are(), err)
		}
		if err := set(total + 1); !errors.Is(err, unix.ERANGE) || len(are()) != 0 {
			g.Errorf("%d functions from none: %q, %v", total+1, are(), err)
		}

		// Autoprobe=no: a new function has no driver, drivers_probe does nothing and
		// reports success, and the executor binds one all the same.
		testkit.NoError(g, sys.SetAutoprobe("pci", pf, false))
		testkit.NoError(g, set(1))
		vf := are()[0]
		if err := sys.Bind("pci", vf); err != nil || driver(vf) != "" {
			g.Errorf("%s with autoprobe off: driver %q, %v", vf, driver(vf), err)
		}
		if err := e.bind("pci", vf, "pci-stub"); err != nil || driver(vf) != "pci-stub" {
			g.Errorf("%s bound by the executor: driver %q, %v", vf, driver(vf), err)
		}
		if was, ok := sys.DriverOverride("pci", vf); !ok || was != "" {
			g.Errorf("%s is kept for %q", vf, was)
		}
		// Probed again it has the same driver, and the function is not lost.
		if err := e.rebind(roce.RebindVF{Bus: "pci", Dev: vf}); err != nil || driver(vf) != "pci-stub" {
			g.Errorf("%s rebound: driver %q, %v", vf, driver(vf), err)
		}
		if err := sys.Unbind("pci", vf); err != nil {
			g.Error(err)
		}
		if err := e.rebind(roce.RebindVF{Bus: "pci", Dev: vf}); err == nil || !strings.Contains(err.Error(), "does not start") {
			g.Errorf("%s without a driver rebound: %v", vf, err)
		}
		if err := set(0); err != nil {
			g.Error(err)
		}
		testkit.NoError(g, errors.Join(sys.SetAutoprobe("pci", pf, true), set(1)))
		if b, s, err := sys.BusDevice("pci", pf); err != nil || s.Autoprobe == nil || !*s.Autoprobe {
			g.Errorf("%+v %+v %v", b, s, err)
		}

		// The driver leaves and its functions stay or go; without one there are no others.
		testkit.NoError(g, errors.Join(set(0), sys.Unbind("pci", pf)))
		if err := set(1); err == nil || len(are()) != 0 {
			g.Errorf("functions without a driver: %q, %v", are(), err)
		} else {
			g.Logf("without a driver: %v", err)
		}
	})
}
