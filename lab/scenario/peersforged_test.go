package scenario

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
)

// forgery changes an answer of a DHCP server that would be accepted without it.
type forgery struct {
	name   string
	change func(header []byte, options map[byte][]byte)
}

var forgeries = []forgery{
	{"none", func([]byte, map[byte][]byte) {}},
	{"another transaction", func(h []byte, _ map[byte][]byte) { h[4] ^= 1 }},
	{"another client's identifier", func(_ []byte, o map[byte][]byte) { o[61] = []byte("\x00another") }},
	{"no server identifier", func(_ []byte, o map[byte][]byte) { delete(o, 54) }},
	{"no lifetime", func(_ []byte, o map[byte][]byte) { delete(o, 51) }},
	{"a lifetime of 0", func(_ []byte, o map[byte][]byte) { o[51] = []byte{0, 0, 0, 0} }},
	{"a mask with holes", func(_ []byte, o map[byte][]byte) { o[1] = []byte{255, 0, 255, 0} }},
	{"no address", func(h []byte, _ map[byte][]byte) { copy(h[16:20], []byte{0, 0, 0, 0}) }},
	{"a loopback address", func(h []byte, _ map[byte][]byte) { copy(h[16:20], []byte{127, 0, 0, 5}) }},
	{"the server's own address", func(h []byte, _ map[byte][]byte) { copy(h[16:20], []byte{10, 5, 0, 1}) }},
}

// forge answers each request for an address on a link of a network namespace, until the returned function is called.
func forge(g *lab.G, netns, dev string, f forgery) (stop func()) {
	g.Helper()
	opened := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the namespace and ends with the goroutine
		opened <- serverSocket(netns, dev)
	}()
	fd := <-opened
	if fd < 0 {
		g.Fatalf("no socket in %s", netns)
	}
	file := os.NewFile(uintptr(fd), "forged")
	conn, err := net.FilePacketConn(file)
	_ = file.Close()
	if err != nil {
		g.Fatal(err)
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := forged(b[:n], f); answer != nil {
				_, _ = conn.WriteTo(answer, &net.UDPAddr{IP: net.IPv4bcast, Port: 68})
			}
		}
	}()
	return func() { _ = conn.Close() }
}

// serverSocket is a socket for the port of DHCP servers, -1 for none.
func serverSocket(netns, dev string) int {
	ns, err := os.Open("/run/netns/" + netns)
	if err != nil || unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET) != nil {
		return -1
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil || unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1) != nil || unix.BindToDevice(fd, dev) != nil ||
		unix.Bind(fd, &unix.SockaddrInet4{Port: 67}) != nil {
		return -1
	}
	return fd
}

// forged is the answer to a message of a client, nil for one that asks for none.
func forged(b []byte, f forgery) []byte {
	const fixed, cookie = 236, "\x63\x82\x53\x63"
	if len(b) < fixed+4 || b[0] != 1 || !bytes.HasPrefix(b[fixed:], []byte(cookie)) {
		return nil
	}
	options := map[byte][]byte{1: {255, 255, 255, 0}, 51: {0, 0, 14, 16}, 54: {10, 5, 0, 1}}
	for o := b[fixed+4:]; len(o) > 1 && o[0] != 255; {
		if o[0] == 0 {
			o = o[1:]
			continue
		}
		if len(o) < 2+int(o[1]) {
			return nil
		}
		switch v := o[2 : 2+int(o[1])]; {
		case o[0] == 53 && len(v) == 1 && v[0] == 1: // a search is answered by an offer
			options[53] = []byte{2}
		case o[0] == 53 && len(v) == 1 && v[0] == 3: // a request by an acknowledgement
			options[53] = []byte{5}
		case o[0] == 61:
			options[61] = bytes.Clone(v)
		}
		o = o[2+int(o[1]):]
	}
	if options[53] == nil {
		return nil
	}
	header := bytes.Clone(b[:fixed])
	header[0], header[3] = 2, 0
	copy(header[16:20], []byte{10, 5, 0, 77})
	f.change(header, options)
	out := append(header, cookie...)
	for code := byte(1); code < 255; code++ {
		if v, ok := options[code]; ok {
			out = append(append(out, code, byte(len(v))), v...)
		}
	}
	return append(out, 255)
}

// acceptedForgeries are those with which a client sets an address on a link.
func acceptedForgeries(g *lab.G, c dhcpClient, link, netns, dev string) string {
	g.Helper()
	var accepted, evidence []string
	for _, f := range forgeries {
		stop := forge(g, netns, dev, f)
		out := c.get(g, link)
		if strings.Contains(out, "inet ") {
			accepted = append(accepted, f.name)
		}
		evidence = append(evidence, fmt.Sprintf("%s: %s", f.name, strings.TrimSpace(out)))
		stop()
		c.stop(g, link)
		g.Sh("ip addr flush dev %[1]s; ip link set %[1]s up", link)
		within(10*time.Second, func() bool { return g.Read("/sys/class/net/"+link+"/carrier") == "1" })
	}
	g.Logf("%s accepts %q\n%s", c.name, accepted, strings.Join(evidence, "\n"))
	return strings.Join(accepted, ", ")
}
