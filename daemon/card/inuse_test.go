package card

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// A function that came into use after the plan is left to its user, and counts as
// no correction.
func TestFunctionInUse(t *testing.T) {
	kerneltest.Isolate(t)
	x := newTree(t)
	e := newExecutor(sysfs.New(x.root), modules.Loader{Ask: func(context.Context, string) (bool, error) { return true, nil }})
	defer e.rest()
	rt, err := rtnl.Dial()
	testkit.NoError(t, err)
	defer func() { _ = rt.Close() }()
	up := func(on bool) {
		t.Helper()
		testkit.NoError(t, rt.Do(rtnl.SetLink(1, rtnl.LinkChange{Up: &on})))
	}
	relink := func(p, to string) {
		_ = os.Remove(x.path(p))
		x.link(p, to)
	}
	on := link.Target{Link: "ib0", Ifindex: 9, IBDevice: "mlx5_0", Port: 1}
	guid := ib.GUID(5)
	ops := []link.Op{roce.RebindVF{On: on, Bus: "pci", Dev: fn0},
		roce.SetVFGUIDs{On: on, Bus: "pci", Dev: fn0, Node: &guid, OldNode: &guid},
		// The plan knew of no function, or of free ones.
		roce.SetVFs{On: on, Bus: "pci", Dev: pf, Count: 4}, roce.SetVFs{On: on, Bus: "pci", Dev: pf, Old: 2}}
	o := New(x.root, rt, Config{})
	defer func() { _ = o.Close() }()
	refused := func(who string) {
		t.Helper()
		for _, op := range ops {
			err := e.apply(t.Context(), op)
			var used *inUse
			if !errors.As(err, &used) || used.user != who {
				t.Errorf("%s: %v", op, err)
				continue
			}
			if why, retry, ok := Explain(op, err, err.Error()); !ok || !retry || why.Code != link.CodeRetry {
				t.Errorf("%s: %+v", op, why)
			}
			if o.applied(op, err); len(o.done) != 0 {
				t.Errorf("%s counts as done: %v", op, o.done)
			}
		}
		if got := x.read("sys/bus/pci/drivers_probe") + x.read("sys/bus/pci/drivers/mlx5_core/unbind"); got != "" {
			t.Errorf("%s lost its driver", got)
		}
		if n := x.read("sys/devices/pci/" + pf + "/sriov_numvfs"); strings.TrimSpace(n) != "2" {
			t.Errorf("the number of functions is %s", n)
		}
	}
	x.dir("sys/devices/pci/" + fn0 + "/net/lo")
	relink("sys/class/net/lo", "sys/devices/pci/"+fn0+"/net/lo")
	up(true)
	refused("lo is up")
	up(false)
	const driver = "sys/devices/pci/" + fn0 + "/driver"
	x.dir("sys/bus/pci/drivers/vfio-pci")
	relink(driver, "sys/bus/pci/drivers/vfio-pci")
	refused("the driver vfio-pci has it")
	relink(driver, "sys/bus/pci/drivers/mlx5_core")
	if err := e.apply(t.Context(), ops[0]); err != nil || x.read("sys/bus/pci/drivers_probe") != fn0 {
		t.Errorf("a free function: %v", err)
	}
	if err := e.apply(t.Context(), ops[1]); errors.Is(err, unix.EBUSY) {
		t.Errorf("a free function: %v", err)
	}
	for n, op := range map[string]link.Op{"4": ops[2], "0": ops[3]} {
		if err := e.apply(t.Context(), op); err != nil || x.read("sys/devices/pci/"+pf+"/sriov_numvfs") != n {
			t.Errorf("free functions: %v", err)
		}
	}
}
