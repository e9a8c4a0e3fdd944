package scenario

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// raOptions are an MTU, a name server and a search domain, as options of a router advertisement.
func raOptions(mtu uint32, server, domain string) []byte {
	out := binary.BigEndian.AppendUint32([]byte{5, 1, 0, 0}, mtu)
	out = append(out, 25, 3, 0, 0, 0, 0, 0, 200)
	out = append(out, netip.MustParseAddr(server).AsSlice()...)
	name := append([]byte{byte(len(domain))}, domain+"\x00"...)
	name = append(name, make([]byte, (8-len(name)%8)%8)...)
	return append(append(out, 31, byte(1+len(name)/8), 0, 0, 0, 0, 0, 200), name...)
}

// Every key of [IPv6AcceptRA] on IPoIB in datagram and connected mode, with name servers on a host
// without systemd-resolved: what a router on another adapter advertises is used, or not used, and
// what the unit set is removed with it.
func TestAcceptRAKeys(t *testing.T) {
	t.Parallel()
	unit := func(name, keys string) string {
		mode := map[string]string{"ib0": "datagram", "ib1": "connected"}[name]
		return "[Match]\nName=" + name + "\n[IPoIB]\nMode=" + mode + "\n[Link]\nMTUBytes=max\n" +
			"[Network]\nIPv6AcceptRA=yes\n[IPv6AcceptRA]\n" + keys
	}
	token := map[string]string{"ib0": "::5:1a:2b", "ib1": "::5:1a:2c"}
	links := []string{"ib0", "ib1"}
	used := func(name string) string {
		return unit(name, "Token=static:"+token[name]+"\nUseDNS=yes\nUseDomains=yes\nUseGateway=yes\nRouteMetric=512\nUseMTU=yes\n"+
			"UseAutonomousPrefix=yes\nDHCPv6Client=no\n")
	}
	file := func(name string) string { return unitDir + "10-" + name + ".ibnetwork" }
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl},
		Files: map[string]string{file("ib0"): used("ib0"), file("ib1"): used("ib1")}}, func(g *lab.G) {
		router := g.Host("router")
		g.Sh("ln -sf /run/ibnetworkd/resolv.conf /etc/resolv.conf")
		g.SM(lab.SM{})
		router.Take("ib2", "10.9.0.9/24")
		canAdvertise(g, router, "ib2")
		d := startDaemon(g)
		for _, name := range links {
			d.configured(name, 30*time.Second)
		}
		send := func(prefix string, mtu uint32, server, domain string) {
			advert := routerAdvert(netip.MustParseAddr(prefix), raOptions(mtu, server, domain)...)
			if err := router.Do(func() error { return advertise("ib2", advert) }); err != nil {
				g.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		// has says what a link has of the last advertisement.
		type has struct {
			Address, Gateway, MTU string
			OnLink                bool
		}
		of := func(name, prefix string) (h has) {
			for f := range strings.FieldsSeq(g.Exec("ip", "-6", "-o", "address", "show", "dev", name, "scope", "global", "-tentative")) {
				if strings.HasPrefix(f, strings.TrimSuffix(prefix, ":")) {
					h.Address = f
				}
			}
			for line := range strings.Lines(g.Exec("ip", "-6", "route", "show", "dev", name)) {
				f := strings.Fields(line)
				if f[0] == "default" {
					h.Gateway = f[slices.Index(f, "metric")+1]
				}
				h.OnLink = h.OnLink || f[0] == prefix+"/64"
			}
			h.MTU = strings.TrimSpace(g.Read("/proc/sys/net/ipv6/conf/" + name + "/mtu"))
			return h
		}
		resolv := func(want string, not ...string) string {
			text := g.Sh("cat /etc/resolv.conf 2>/dev/null || true")
			if !strings.Contains(text, want) || slices.ContainsFunc(not, func(s string) bool { return strings.Contains(text, s) }) {
				return fmt.Sprintf("resolv.conf is to have %q and none of %q:\n%s", want, not, text)
			}
			return ""
		}
		reload := func(text func(name string) string, ready func(s link.Status) bool) {
			g.Helper()
			for _, name := range links {
				g.Write(file(name), text(name))
			}
			d.p.Signal(syscall.SIGHUP)
			for _, name := range links {
				d.wait(name, "configured by the new unit", 15*time.Second,
					func(s link.Status) bool { return s.State == link.StateConfigured && ready(s) })
			}
		}
		forget := func() {
			for _, name := range links {
				g.Exec("ip", "-6", "route", "delete", "default", "dev", name)
			}
		}
		is := func(key, wanted string) func(s link.Status) bool {
			return func(s link.Status) bool { return attr(s, key).Wanted == wanted && attr(s, key).OK() }
		}

		// Everything is used.
		g.WaitFor(30*time.Second, func() string {
			send("fd77::", 1500, "fd77::53", "ra")
			for _, name := range links {
				want := has{Address: "fd77" + token[name] + "/64", Gateway: "512", MTU: "1500", OnLink: true}
				if got := of(name, "fd77::"); got != want {
					return fmt.Sprintf("%s has %+v, not %+v", name, got, want)
				}
			}
			return resolv("nameserver fd77::53\nsearch ra")
		})
		for _, name := range links {
			if a := attr(d.status(name), "Token"); a.Wanted != token[name] || a.Actual != token[name] || !a.OK() {
				g.Errorf("%s: %+v", name, a)
			}
			if out := g.Exec("ip", "token", "get", "dev", name); !strings.Contains(out, token[name]) {
				g.Errorf("ip token: %s", out)
			}
		}
		g.Logf("%s", g.Exec("ibnetctl", "status", "ib0"))
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, "ip ") || strings.Contains(out, "sysctl") {
			g.Errorf("there is something to do where all is set:\n%s", out)
		}
		g.Exec("ip", "token", "set", "::7", "dev", "ib0") // by another program: it is set again
		d.wait("ib0", "with its token again", 10*time.Second, func(link.Status) bool {
			return strings.Contains(g.Exec("ip", "token", "get", "dev", "ib0"), token["ib0"])
		})

		// Without the token the addresses are made from the port GUIDs.
		reload(func(name string) string {
			return unit(name, "UseDomains=no\nUseMTU=no\nRouteMetric=700\nToken=eui64\n")
		}, is("Token", "eui64"))
		forget()
		g.WaitFor(10*time.Second, func() string {
			send("fd78::", 1400, "fd78::53", "other")
			for _, name := range links {
				got := of(name, "fd78::")
				if !strings.HasPrefix(got.Address, "fd78::") || strings.Contains(got.Address, token[name][1:]+"/") || got.Gateway != "700" ||
					got.MTU != "1500" || !got.OnLink {
					return fmt.Sprintf("%s has %+v", name, got)
				}
				if old := of(name, "fd77::"); strings.Contains(old.Address, token[name][1:]+"/") {
					return fmt.Sprintf("%s has still the address of its former token: %+v", name, old)
				}
			}
			return resolv("nameserver fd78::53", "search")
		})

		// Nothing is used but the prefix as on the link.
		reload(func(name string) string {
			return unit(name, "UseDNS=no\nUseGateway=no\nUseMTU=no\nUseAutonomousPrefix=no\n")
		},
			is("UseAutonomousPrefix", "no"))
		forget()
		g.WaitFor(10*time.Second, func() string {
			send("fd79::", 1300, "fd79::53", "third")
			for _, name := range links {
				if got, want := of(name, "fd79::"), (has{MTU: "1500", OnLink: true}); got != want {
					return fmt.Sprintf("%s has %+v, not %+v", name, got, want)
				}
			}
			return resolv("# Written by ibnetworkd", "nameserver", "search")
		})

		// The token of a unit goes with it; another program's stays.
		reload(used, func(s link.Status) bool { return is("Token", token[s.Name])(s) })
		g.WaitFor(10*time.Second, func() string { send("fd77::", 1500, "fd77::53", "ra"); return resolv("fd77::53") })
		// It goes at once where the kernel lets it, and else at a reload after that.
		g.Sh("sysctl -q -w net.ipv6.conf.ib1.accept_ra=0")
		g.Sh("rm %s %s", file("ib0"), file("ib1"))
		g.Write(file("ib0"), unit("ib0", "UseDNS=no\n"))
		d.p.Signal(syscall.SIGHUP)
		d.wait("ib1", "without its unit", 15*time.Second, func(s link.Status) bool { return s.Unit == "" && s.State == link.StateConfigured })
		if out := g.Exec("ip", "token", "get", "dev", "ib1"); !strings.Contains(out, token["ib1"]) {
			g.Errorf("a link that accepts no routers let its token go: %s", out)
		}
		g.Sh("sysctl -q -w net.ipv6.conf.ib1.accept_ra=2")
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			for _, name := range links {
				if out := g.Exec("ip", "token", "get", "dev", name); !strings.Contains(out, "token :: ") {
					return fmt.Sprintf("%s has still a token: %s", name, out)
				}
				if a := of(name, "fd77::").Address; strings.Contains(a, token[name][1:]+"/") {
					return name + " has still the address of its token: " + a
				}
			}
			return resolv("", "nameserver", "search")
		})
		g.Exec("ip", "token", "set", "::9", "dev", "ib0")
		quiet(g, d)
		if out := g.Exec("ip", "token", "get", "dev", "ib0"); !strings.Contains(out, "token ::9 ") {
			g.Errorf("the token of another program was removed: %s", out)
		}
	})
}
