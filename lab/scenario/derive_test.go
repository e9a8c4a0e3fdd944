package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// sameOnAll are the files that every node has: addresses from another link, from the
// host's number and from a table.
var sameOnAll = map[string]string{
	unitDir + "10-ib.ibnetwork": `[Match]
Host=node*
Type=infiniband

[Network]
Address=10.3.{eno1.3}.{eno1.4}/16
Address=10.5.0.0+{host}/16
Address=fd00:3::{host}/64
AddressTable=/etc/ibnetworkd/addresses

[SubnetManager]
Manage=auto
StartDelaySec=1
`,
	"/etc/ibnetworkd/addresses": "node1 10.4.0.1/16\nnode2 10.4.0.2/16\n",
}

// Two hosts have the same unit and the same table. Each gets its own addresses: those
// of its number and its line at once, that of eno1 when eno1 has one, which it keeps
// when eno1 loses it and changes when eno1 has another. A mistake in the table takes
// no address away, an edit of it is applied.
func TestSameFileOnAllNodes(t *testing.T) {
	t.Parallel()
	body := func(g *lab.G) {
		defer journal(g)
		me := strings.TrimPrefix(g.Node(), "node")
		they := map[string]string{"1": "2", "2": "1"}[me]
		meet := func(where string) {
			g.Helper()
			g.Post(where+"-"+me, "x")
			g.Await(where+"-"+they, 120*time.Second)
		}
		has := func(what string, limit time.Duration, is func(link.Status) string) time.Duration {
			g.Helper()
			start := time.Now()
			g.WaitFor(limit, func() string {
				for _, l := range describe(g).Links {
					if l.Name == "ib0" {
						if why := is(l); why != "" {
							return fmt.Sprintf("%s: %s: %s %v %v", what, why, l.State, l.Addresses, l.Reasons)
						}
						return ""
					}
				}
				return what + ": no ib0"
			})
			return time.Since(start)
		}
		addresses := func(want, reason string, addrs ...string) func(link.Status) string {
			return func(l link.Status) string {
				all := " " + strings.Join(l.Addresses, " ") + " "
				for _, a := range addrs {
					if !strings.Contains(all, " "+a+" ") {
						return "no " + a
					}
				}
				if want != "" && string(l.State) != want {
					return "not " + want
				}
				if reason != "" && !strings.Contains(fmt.Sprint(l.Reasons), reason) {
					return "no reason " + reason
				}
				return ""
			}
		}
		number, table := "10.5.0."+me+"/16", "10.4.0."+me+"/16"
		has("before eno1", 120*time.Second, addresses("configuring", "there is no link eno1", number, table, "fd00:3::"+me+"/64"))
		g.Sh("ip link add eno1 type dummy; ip link set eno1 up")
		has("without an address", 20*time.Second, addresses("configuring", "eno1 has no IPv4 address yet", number))
		g.Sh("ip address add 192.168.5.%s/24 dev eno1", me)
		took := has("with an address", 20*time.Second, addresses("configured", "", number, table, "10.3.5."+me+"/16"))
		g.Logf("the derived address is there %v after that of eno1", took)
		meet("first")
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "60s")
		for _, a := range []string{"10.3.5." + they, "10.4.0." + they, "10.5.0." + they, "fd00:3::" + they} {
			g.Ping(a, "-c", "2", "-w", "20")
		}
		meet("pinged")

		g.Sh("ip address delete 192.168.5.%s/24 dev eno1", me)
		has("without its source", 20*time.Second, addresses("configuring", "eno1 has no IPv4 address yet", "10.3.5."+me+"/16"))
		g.Sh("ip address add 192.168.6.1%s/24 dev eno1", me)
		took = has("with another source", 20*time.Second, addresses("configured", "", "10.3.6.1"+me+"/16"))
		g.Logf("it follows %v after the source", took)
		if out := g.Exec("ip", "-o", "address", "show", "dev", "ib0"); strings.Contains(out, "10.3.5.") {
			g.Errorf("the address of before is there:\n%s", out)
		}
		meet("second")
		g.Ping("10.3.6.1"+they, "-c", "2", "-w", "20")

		g.Write("/etc/ibnetworkd/addresses", "node1 10.4.0.7/\nnode2 10.4.0.7/\n")
		out, err := g.Try("ibnetctl", "verify")
		if err == nil || !strings.Contains(out, "/etc/ibnetworkd/addresses:1:7: warning:") {
			g.Errorf("verify: %v\n%s", err, out)
		}
		has("with a mistake in the table", 20*time.Second, addresses("configuring", "has no address that can be used", table))
		g.Write("/etc/ibnetworkd/addresses", "node1 10.4.1.1/16\nnode2.example 10.4.1.2/16\n")
		took = has("with another line", 20*time.Second, addresses("configured", "", "10.4.1."+me+"/16"))
		g.Logf("the table is in force %v after it was saved", took)
		if out := g.Exec("ip", "-o", "address", "show", "dev", "ib0"); strings.Contains(out, "10.4.0.") {
			g.Errorf("the address of before is there:\n%s", out)
		}
		meet("third")
		g.Ping("10.4.1."+they, "-c", "2", "-w", "20")

		list := ""
		for n := range 1000 {
			list += fmt.Sprintf("node%d ib0 eno1=192.168.%d.%d/16\n", n+1, (n+1)/256, (n+1)%256)
		}
		g.Write("/tmp/hosts", list)
		start := time.Now()
		out, err = g.Try("ibnetctl", "plan", "--hosts", "/tmp/hosts")
		if err == nil || !strings.Contains(out, "has no line for the host \"node900\"") || !strings.Contains(out, "10.5.3.132/16") {
			g.Errorf("plan --hosts: %v\n%s", err, out[:min(len(out), 2000)])
		}
		g.Logf("a thousand hosts are planned in %v", time.Since(start))
		// The service sees that the host gets another name: its unit has no ProtectHostname=.
		g.Exec("hostname", "node7"+me)
		took = has("with another host name", 20*time.Second, addresses("", "", "10.5.0.7"+me+"/16", "fd00:3::7"+me+"/64"))
		g.Logf("the addresses of another host name are there after %v", took)
		meet("end")
	}
	node := func(n string) lab.Node {
		c := installed(lab.Config{Files: map[string]string{"/etc/hostname": n + "\n"}}, nil)
		for f, text := range sameOnAll {
			c.Files[f] = text
		}
		return lab.Node{Name: n, Config: c, Body: body}
	}
	lab.RunNet(t, lab.Net{
		Cables: []string{"node1/1 node2/1"},
		Nodes:  []lab.Node{node("node1"), node("node2")},
	})
}
