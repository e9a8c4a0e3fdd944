package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// An Omni-Path port keeps its MTU and is not sent to a subnet manager of
// InfiniBand; a virtual function gets its GUID although no driver is bound to
// functions by itself.
func TestOtherCards(t *testing.T) {
	t.Parallel()
	vf := func(more string) string {
		return "[Match]\nIBDevice=swib1\n[VirtualFunctions]\nCount=1\n" + more
	}
	withAndWithoutUdev(t, lab.Config{HCAs: 2, Bins: []string{ibnetworkd, ibnetctl}, Commands: []string{"driver h0 hfi1"},
		Files: map[string]string{
			unitDir + "10-opa.ibnetwork": "[Match]\nDriver=hfi1\n[Link]\nMTUBytes=max\n[Network]\nAddress=10.8.0.1/24\n",
			unitDir + "20-vf.ibnetwork":  vf(""),
		}}, func(g *lab.G) {
		d := startDaemon(g)
		opa, pf := "", ""
		g.Wait("the links", 20*time.Second, func() bool {
			for _, s := range d.report().Links {
				switch s.IBDevice {
				case "swib0":
					opa = s.Name
				case "swib1":
					pf = s.Name
				}
			}
			return opa != "" && pf != ""
		})
		st := d.wait(opa, "waiting for its fabric manager", 20*time.Second, func(s link.Status) bool {
			return strings.Contains(s.Reason().Text, "fabric manager of Omni-Path") && strings.Contains(s.Reason().Next, "opafm")
		})
		if a := attr(st, "MTUBytes"); !a.OK() || mtu(g, opa) != "10236" {
			g.Errorf("MTUBytes=max is %s, %+v", mtu(g, opa), a)
		}
		g.Wait("the virtual function", 20*time.Second, func() bool { return attr(d.status(pf), "Count").Actual == "1" })
		fn, err := filepath.EvalSymlinks("/sys/class/net/" + pf + "/device/virtfn0")
		if err != nil {
			g.Fatal(err)
		}
		for _, guid := range []string{"0x0002c90300000a01", "0x0002c90300000a02"} {
			g.Write(unitDir+"20-vf.ibnetwork", vf("Autoprobe=no\n[VF]\nVirtualFunction=0\nNodeGUID="+guid+"\n"))
			d.p.Signal(syscall.SIGHUP)
			g.WaitFor(20*time.Second, func() string {
				s := d.status(pf)
				driver, _ := os.Readlink(fn + "/driver")
				own, _ := filepath.Glob(fn + "/infiniband/*")
				if !attr(s, "Autoprobe").OK() || attr(s, "Autoprobe").Actual != "no" || attr(s, "VF 0 NodeGUID").Actual != guid ||
					filepath.Base(driver) != "swib" || len(own) != 1 {
					return fmt.Sprintf("driver %q, %q: %+v\n%s", driver, own, s.Attributes, tail(d.p.Output(), 8))
				}
				if has := strings.ReplaceAll(strings.TrimSpace(g.Read(own[0]+"/node_guid")), ":", ""); "0x"+has != guid {
					return "the function has " + has
				}
				if kept := strings.TrimSpace(g.Read(fn + "/driver_override")); kept != "(null)" {
					return "the function is kept for " + kept
				}
				return ""
			})
		}
	})
}
