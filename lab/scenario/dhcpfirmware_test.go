package scenario

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
)

// firmware gets an address as boot firmware does on an InfiniBand port. FlexBoot and iPXE write an
// Ethernet address, here some bytes of the port GUID, into the request (htype 1, hlen 6) and have
// answers broadcast (ipoib_init_addr and dhcp_create_packet of iPXE).
func firmware(g *lab.G, link string, guid, id []byte) netip.Addr {
	g.Helper()
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, link); err == nil {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			}
		})
		return err
	}}
	s, err := c.ListenPacket(g.Context(), "udp4", "0.0.0.0:68")
	if err != nil {
		g.Fatal(err)
	}
	defer s.Close()
	// ask sends a message until the server answers with another one.
	ask := func(kind, want byte, options ...byte) (answer []byte) {
		g.Helper()
		m := make([]byte, 240, 400)
		copy(m, []byte{1, 1, 6, 0, 0x0f, 0x1e, 0xb0, kind, 0, 0, 0x80})
		copy(m[28:], []byte{guid[0], guid[1], guid[2], guid[5], guid[6], guid[7]})
		copy(m[236:], []byte{99, 130, 83, 99})
		m = append(append(append(m, 53, 1, kind, 61, byte(len(id))), id...), options...)
		m = append(m, 60, 9)
		m = append(append(m, "PXEClient"...), 255)
		g.WaitFor(10*time.Second, func() string {
			if _, err := s.WriteTo(m, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
				return err.Error()
			}
			for end := time.Now().Add(2 * time.Second); ; {
				_ = s.SetReadDeadline(end)
				b := make([]byte, 1500)
				n, _, err := s.ReadFrom(b)
				if err != nil {
					return fmt.Sprintf("%s: no answer to message %d: %v", link, kind, err)
				}
				if b = b[:n]; n > 240 && b[0] == 2 && bytes.Equal(b[4:8], m[4:8]) && bytes.Contains(b[240:], []byte{53, 1, want}) {
					answer = b
					return ""
				}
			}
		})
		return answer
	}
	offer := ask(1, 2)
	i := bytes.Index(offer[240:], []byte{54, 4})
	if i < 0 || len(offer) < 240+i+6 {
		g.Fatalf("%s: an offer without a server: %x", link, offer)
	}
	ack := ask(3, 5, append(append([]byte{50, 4}, offer[16:20]...), offer[240+i:240+i+6]...)...)
	address, _ := netip.AddrFromSlice(ack[16:20])
	return address
}

// One reservation serves the boot firmware of the adapter and the system: the client identifier
// of the firmware is that of ClientIdentifier=flexboot, or with the firmware's setting "DHCP
// Client-Id HW Type IB" that of ClientIdentifier=mac, which installers send as well; and the
// daemon in the initramfs, whose lease that of the system keeps.
func TestFirmwareReservation(t *testing.T) {
	t.Parallel()
	c := lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Files: initramfsFiles()}
	c.Bins = append(c.Bins, debs(t, append(initramfsPackages, dnsmasqPackages...)...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		manage(g, defaultPartition)
		d := startDaemon(g)
		// The server is apart: with an address in this namespace the kernel would send from it.
		g.Sh("ip netns add server; ip link set ib2 netns server; ip -n server address add 10.11.0.1/24 dev ib2; ip -n server link set ib2 up")
		g.Sh("ip link set ib0 up; ip link set ib1 up")
		ports := []struct {
			link, key, address string
			guid, id           []byte
		}{{link: "ib0", key: "flexboot", address: "10.11.0.17"}, {link: "ib1", key: "mac", address: "10.11.0.18"}}
		args := []string{"--interface=ib2", "--dhcp-authoritative", "--dhcp-range=10.11.0.100,10.11.0.199,1h"}
		for i := range ports {
			p := &ports[i]
			guid, err := hex.DecodeString(strings.TrimPrefix(g.PortGUID(fmt.Sprintf("swib%d", i), 1), "0x"))
			if err != nil || len(guid) != 8 {
				g.Fatalf("GUID %x: %v", guid, err)
			}
			prefix := []byte{0xff, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0xc9, 0}
			if p.key == "mac" {
				prefix = []byte{0x20}
			}
			p.guid, p.id = guid, append(prefix, guid...)
			args = append(args, "--dhcp-host=id:"+strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf("% x", p.id)), " ", ":")+","+p.address)
		}
		dnsmasqBy(g, "ip netns exec server", args...)
		for _, p := range ports {
			if a := firmware(g, p.link, p.guid, p.id); a.String() != p.address {
				g.Errorf("the firmware of %s gets %s, reserved is %s", p.link, a, p.address)
			}
			g.Write(unitDir+"20-"+p.link+".ibnetwork", "[Match]\nName="+p.link+"\n[Network]\nDHCP=ipv4\n[DHCPv4]\nClientIdentifier="+p.key+"\n")
		}
		d.p.Signal(syscall.SIGHUP)
		for _, p := range ports {
			d.leased(p.link, p.address+"/24", 40*time.Second)
		}
		if text := strings.TrimSpace(g.Read("/tmp/leases")); strings.Count(text, "10.11.0.17 ") != 1 || strings.Count(text, "\n") != 1 {
			g.Errorf("the leases are not one for each port:\n%s", text)
		}
		initramfsLeases(g, d, ports[0].address+"/24")
	})
}
