package scenario

import (
	"fmt"
	"strings"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// trials tries examples of the documentation on a host with the IPoIB links ib and second,
// as TestExamplesUnderUdev does.
type trials struct {
	g          *lab.G
	ib, second string
	rail       int // the number in the name of ib
	use        func(units map[string]string, check func() string)
	example    func(name string, replace ...string) map[string]string
	has        func(name, addr string) func() string
	state      func(name string) link.Status
}

// pair is two examples that belong together, or one, for the two links of the host.
func (t trials) pair(names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		for file, text := range t.example(n, "ib0", t.ib, "ib1", t.second) {
			out[file] = text
		}
	}
	return out
}

// together are checks of which the first that fails is reported.
func together(checks ...func() string) func() string {
	return func() string {
		for _, c := range checks {
			if why := c(); why != "" {
				return why
			}
		}
		return ""
	}
}

// upInJob is whether a link is up in the network namespace job, with words of its description; the
// state of the link that it was made on says why not.
func (t trials) upInJob(name, words, on string) func() string {
	return func() string {
		if out := inJob(t.g, "link show "+name); !strings.Contains(out, ",UP") || !strings.Contains(out, words) {
			return name + " in the network namespace job: " + out + t.state(on).Reason().Text
		}
		return ""
	}
}

func (t trials) prints(command string, texts ...string) func() string {
	return func() string {
		out, _ := t.g.Try("sh", "-c", command)
		for _, text := range texts {
			if strings.Contains(out, text) {
				return ""
			}
		}
		return fmt.Sprintf("%s prints none of %q:\n%s", command, texts, out)
	}
}

func (t trials) run(eth string) {
	table := strings.NewReplacer("/ib0", "/"+t.ib, "/ib1", "/"+t.second).Replace(t.example("addresses")["addresses"])
	t.g.Sh("mkdir -p /etc/ibnetworkd")
	t.g.Write("/etc/ibnetworkd/addresses", table)
	t.use(t.pair("24-address-table.ibnetwork"), together(t.has(t.ib, "10.24.0.17/16"), t.has(t.second, "10.25.0.17/16"),
		t.has(t.second, "fd00:25::17/64")))
	t.use(t.pair("25-duplicate-address.ibnetwork"), t.has(t.ib, "10.26.0.17/16"))
	t.use(t.pair("26-neighbor.ibnetwork"), together(t.has(t.ib, "10.27.0.17/16"), t.prints("ip neighbour show dev "+t.ib+" nud permanent",
		"10.27.0.1 lladdr 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df")))
	t.use(t.pair("27-router-advertisement.ibnetwork"), together(t.prints("ip token get dev "+t.ib, "token ::17 "),
		t.prints("cat /proc/sys/net/ipv6/conf/"+t.ib+"/ra_defrtr_metric", "2048")))
	t.use(t.pair("28-link-local.ibnetwork"), t.has(t.ib, "inet 169.254."))
	t.use(t.pair("31-multirail.ibnetwork"), together(t.has(t.ib, fmt.Sprintf("10.31.%d.17/16", t.rail)), t.has(t.second, "10.31."),
		t.prints("cat /proc/sys/net/ipv4/conf/"+t.ib+"/arp_ignore", "1")))
	t.use(t.pair("32-nexthop-rail0.ibnetwork", "33-nexthop-rail1.ibnetwork"), together(t.has(t.ib, "10.32.0.17/16"),
		t.has(t.second, "10.33.0.17/16"), t.prints("ip nexthop show id 10", "group 1/2", "group 2/1"),
		t.prints("ip route show 10.90.0.0/16", "nhid 10")))
	t.use(t.pair("34-vrf.ibnetwork"), together(t.has(t.second, "10.34.0.17/16"), t.prints("ip route show table 100",
		"10.90.0.0/16 via 10.34.0.1"), t.prints("ip -o link show dev "+t.second, "master red")))
	t.use(t.pair("35-bond.ibnetwork", "36-bond-ports.ibnetwork"), together(t.has("ipbond", "10.35.0.17/16"),
		t.prints("cat /sys/class/net/ipbond/bonding/slaves", t.ib+" "+t.second, t.second+" "+t.ib),
		t.prints("cat /sys/class/net/ipbond/bonding/active_slave", t.ib)))
	t.use(t.pair("37-bond-timeout.ibnetwork", "36-bond-ports.ibnetwork"), together(t.has("ipbond", "10.37.0.17/16"),
		t.prints("ip route show dev ipbond 10.37.0.0/16", "rto_min lock 20ms")))
	t.g.Sh("ip netns add job")
	t.use(t.pair("42-container.ibnetwork"), t.upInJob("job0", "pkey 0x8001", t.ib))
	vlan := t.example("64-vlan.ibnetwork", "ens1f0np0", eth)
	vlan["65-vlan-address.ibnetwork"] = t.example("65-vlan-address.ibnetwork")["65-vlan-address.ibnetwork"]
	t.use(vlan, together(t.has("storage64", "10.65.0.17/24"), t.prints("ip -d link show dev storage64", "{ 3:3 }")))
	t.use(t.example("66-vlan-container.ibnetwork", "ens1f0np0", eth), t.upInJob("job66", "id 66", eth))
	macvlan := t.example("67-macvlan.ibnetwork", "ens1f0np0", eth)
	macvlan["68-macvlan-address.ibnetwork"] = t.example("68-macvlan-address.ibnetwork")["68-macvlan-address.ibnetwork"]
	t.use(macvlan, together(t.has("job67", "10.67.0.17/24"), t.prints("ip -d link show dev job67", "macvlan mode bridge")))
	t.use(t.example("69-ipvlan-container.ibnetwork", "ens1f0np0", eth), t.upInJob("job69", "mode l2 bridge", eth))
	lag := t.example("62-roce-lag.ibnetwork", "ens1f0np0", eth, "ens1f1np1", "none")
	lag["63-roce-lag-bond.ibnetwork"] = t.example("63-roce-lag-bond.ibnetwork")["63-roce-lag-bond.ibnetwork"]
	t.use(lag, together(func() string { // no switch answers LACP
		out, _ := t.g.Try("ip", "-o", "address", "show", "dev", "lag0")
		if !strings.Contains(out, "10.63.0.17/16") {
			return t.state("lag0").Reason().Text + "\n" + out
		}
		return ""
	}, t.prints("cat /sys/class/net/lag0/bonding/slaves", eth), t.prints("cat /sys/class/net/lag0/bonding/mode", "802.3ad 4"),
		t.prints("cat /sys/class/net/lag0/bonding/lacp_rate", "fast 1")))
	// This card has no rings: TestRingsOfDrivers sets those of the example.
	t.use(t.example("61-rings.ibnetwork", "ens1f0np0", eth), func() string {
		if a := attr(t.state(eth), "RxBufferSize"); a.Wanted != "8192" || !a.OK() && a.Why.Code != link.CodeUnsupported {
			return fmt.Sprintf("RxBufferSize of %s: %+v", eth, a)
		}
		return ""
	})
}
