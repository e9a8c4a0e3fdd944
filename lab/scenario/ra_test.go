package scenario

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// routerAdvert is a router advertisement (RFC 4861) of a prefix of 64 bits and a
// default route, with options appended.
func routerAdvert(prefix netip.Addr, options ...byte) []byte {
	b := []byte{134, 0, 0, 0, 64, 0}
	b = binary.BigEndian.AppendUint16(b, 1800)
	b = append(b, make([]byte, 8)...)
	b = append(b, 3, 4, 64, 0xc0)
	b = binary.BigEndian.AppendUint32(b, 86400)
	b = binary.BigEndian.AppendUint32(b, 14400)
	b = append(b, 0, 0, 0, 0)
	b = append(b, prefix.AsSlice()...)
	return append(b, options...)
}

// advertise sends a router advertisement on a link of the calling thread's network
// namespace.
func advertise(dev string, advert []byte) error {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// Receivers ignore one that may have passed a router.
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, i.Index); err != nil {
		return err
	}
	return unix.Sendto(fd, advert, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(i.Index)})
}

// canAdvertise waits until the router has an address to send from.
func canAdvertise(g *lab.G, router *lab.Host, dev string) {
	g.WaitFor(10*time.Second, func() string {
		out := router.Sh("ip -6 -o address show %s scope link; ip -6 -o address show %s tentative", dev, dev)
		if !strings.Contains(out, "fe80") || strings.Contains(out, "tentative") {
			return "the router has no address yet: " + out
		}
		return ""
	})
}

// Name servers and domains that routers advertise go to systemd-resolved for as long
// as they hold, outlive a restart of the daemon, and are of no effect with a reason
// where systemd-resolved does not run.
func TestAdvertisedNameServers(t *testing.T) {
	t.Parallel()
	unit := "[Match]\nName=va\n[Network]\nIPv6AcceptRA=yes\nDNS=fd77::1\n[IPv6AcceptRA]\nUseDomains=route\n"
	lab.Run(t, lab.Config{Userland: lab.Systemd, Bins: []string{ibnetworkd}, Units: []string{"systemd-resolved.service"},
		Files: map[string]string{unitDir + "10.ibnetwork": unit}}, func(g *lab.G) {
		router := g.Host("router")
		g.Sh("ip link add va type veth peer name vb")
		router.Give("vb")
		router.Sh("ip link set vb up")
		d := startDaemon(g)
		d.configured("va", 15*time.Second)
		canAdvertise(g, router, "vb")
		send := func(lifetime byte) {
			// RDNSS fd77::53 and DNSSL ra.example.
			options := append([]byte{25, 3, 0, 0, 0, 0, 0, lifetime}, netip.MustParseAddr("fd77::53").AsSlice()...)
			options = append(options, "\x1f\x03\x00\x00\x00\x00\x00"...)
			options = append(append(options, lifetime), "\x02ra\x07example\x00\x00\x00\x00\x00"...)
			advert := routerAdvert(netip.MustParseAddr("fd77::"), options...)
			testkit.NoError(g, router.Do(func() error { return advertise("vb", advert) }))
		}
		has := func(want bool) string {
			out := g.Exec("resolvectl", "status", "va")
			if !strings.Contains(out, "fd77::1") || strings.Contains(out, "fd77::53") != want || strings.Contains(out, "~ra.example") != want {
				return fmt.Sprintf("advertised %v, resolved has:\n%s", want, out)
			}
			return ""
		}
		g.WaitFor(20*time.Second, func() string {
			send(200)
			time.Sleep(300 * time.Millisecond)
			return has(true)
		})
		d.p.Signal(syscall.SIGTERM)
		if err := d.p.Wait(10 * time.Second); err != nil {
			g.Error(err)
		}
		d = startDaemon(g)
		d.configured("va", 15*time.Second)
		if why := has(true); why != "" {
			g.Errorf("after a restart of the daemon: %s", why)
		}
		g.Exec("systemctl", "stop", "systemd-resolved")
		d.wait("va", "a reason", 10*time.Second, func(s link.Status) bool {
			return s.State == link.StateConfigured && s.Reason().Code == link.CodeNoResolved
		})
		g.Exec("systemctl", "start", "systemd-resolved")
		g.WaitFor(10*time.Second, func() string { return has(true) })
		send(0)
		g.WaitFor(10*time.Second, func() string { return has(false) })
		send(3)
		g.WaitFor(3*time.Second, func() string { return has(true) })
		g.WaitFor(10*time.Second, func() string { return has(false) })
		// Addresses of no server, a name of no host and a cut option change nothing.
		for _, o := range []string{"\x19\x03\x00\x00\x00\x00\x00\xff" + strings.Repeat("\xff", 16),
			"\x1f\x02\x00\x00\x00\x00\x00\xff\x03a b\x00\x00\x00\x00", "\x19\x01\x00\x00\x00\x00\x00\xff"} {
			testkit.NoError(g, router.Do(func() error { return advertise("vb", routerAdvert(netip.MustParseAddr("fd77::"), []byte(o)...)) }))
		}
		time.Sleep(time.Second)
		if why := has(false); why != "" {
			g.Error(why)
		}
	})
}

// IPv6AcceptRA=yes takes router advertisements also where the host forwards, and
// keeps what they brought when forwarding is turned on later.
func TestRouterAdvertisements(t *testing.T) {
	t.Parallel()
	unit := "[Match]\nName=va\n[Network]\nIPv6AcceptRA=yes\n"
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{unitDir + "10.ibnetwork": unit}},
		func(g *lab.G) {
			router := g.Host("router")
			g.Sh("ip link add va type veth peer name vb")
			router.Give("vb")
			router.Sh("ip link set vb up")
			g.Sh("sysctl -w net.ipv6.conf.all.forwarding=1")
			d := startDaemon(g)
			d.configured("va", 15*time.Second)
			canAdvertise(g, router, "vb")
			advert := routerAdvert(netip.MustParseAddr("fd77::"))
			here := func() string {
				out := g.Sh("ip -6 -o address show va; ip -6 route show default")
				if !strings.Contains(out, "fd77:") || !strings.Contains(out, "default via fe80::") {
					return fmt.Sprintf("no address or no default route:\n%s%s", out, g.Sh("sysctl net.ipv6.conf.va.accept_ra net.ipv6.conf.va.forwarding"))
				}
				return ""
			}
			g.WaitFor(10*time.Second, func() string {
				testkit.NoError(g, router.Do(func() error { return advertise("vb", advert) }))
				time.Sleep(100 * time.Millisecond)
				return here()
			})
			said := func(want string) {
				d.wait("va", want, 5*time.Second, func(s link.Status) bool { return attr(s, "IPv6AcceptRA").Actual == want })
			}
			said("yes (accept_ra=2, forwarding=1)")
			g.Sh("sysctl -w net.ipv6.conf.all.forwarding=0")
			said("yes (accept_ra=2, forwarding=0)")
			g.Sh("sysctl -w net.ipv6.conf.all.forwarding=1")
			said("yes (accept_ra=2, forwarding=1)")
			if why := here(); why != "" {
				g.Errorf("after forwarding was turned off and on: %s", why)
			}
			quiet(g, d)
		})
}
