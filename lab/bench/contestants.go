package bench

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const unitDir = "/etc/systemd/network"

// A spec is one link as an administrator wants it: the port's own interface, or
// a P_Key child of it.
type spec struct {
	name      string
	parent    string // "" for a port's own interface
	pkey      uint16 // of a child
	connected bool
	mtu       int // 0: leave
	addr      netip.Prefix
}

func (s spec) wish() wish {
	w := wish{name: s.name, mtu: s.mtu, mode: 0, addr: s.addr}
	if s.connected {
		w.mode = 1
	}
	return w
}

func wishes(specs []spec) []wish {
	out := make([]wish, len(specs))
	for i, s := range specs {
		out[i] = s.wish()
	}
	return out
}

// A contestant configures links from files.
type contestant struct {
	name    string
	service string
	// files renders the configuration; makeChildren says whether the daemon
	// has to make the children or finds them there.
	files func(specs []spec, makeChildren bool) map[string]string
	// reload makes the running daemon read its files again.
	reload []string
	// extra are files outside unitDir that an administrator needs besides.
	extra func(specs []spec) map[string]string
}

func (c contestant) String() string { return c.name }

var ours = contestant{
	name:    "ibnetworkd",
	service: "ibnetworkd",
	reload:  []string{"systemctl", "kill", "-s", "HUP", "ibnetworkd"},
	files: func(specs []spec, makeChildren bool) map[string]string {
		out := map[string]string{}
		for i, s := range specs {
			var b strings.Builder
			fmt.Fprintf(&b, "[Match]\nName=%s\n", s.name)
			if s.parent == "" || !makeChildren {
				fmt.Fprintf(&b, "[IPoIB]\nMode=%s\n", mode(s))
			}
			if s.mtu != 0 {
				fmt.Fprintf(&b, "[Link]\nMTUBytes=%d\n", s.mtu)
			}
			if makeChildren && s.parent == "" {
				for _, c := range specs {
					if c.parent == s.name {
						fmt.Fprintf(&b, "[Partition]\nPartitionKey=0x%04x\nName=%s\nMode=%s\n", c.pkey, c.name, mode(c))
					}
				}
			}
			fmt.Fprintf(&b, "[Network]\nAddress=%s\nIPv6AcceptRA=no\n", s.addr)
			out[fmt.Sprintf("10-%03d.ibnetwork", i)] = b.String()
		}
		return out
	},
}

var networkd = contestant{
	name:    "systemd-networkd",
	service: "systemd-networkd",
	reload:  []string{"networkctl", "reload"},
	files: func(specs []spec, makeChildren bool) map[string]string {
		out := map[string]string{}
		for i, s := range specs {
			var b strings.Builder
			fmt.Fprintf(&b, "[Match]\nName=%s\n[Link]\nRequiredForOnline=no\n", s.name)
			if s.mtu != 0 {
				fmt.Fprintf(&b, "MTUBytes=%d\n", s.mtu)
			}
			fmt.Fprintf(&b, "[Network]\nAddress=%s\nIPv6AcceptRA=no\n", s.addr)
			if makeChildren && s.parent == "" {
				for _, c := range specs {
					if c.parent == s.name {
						fmt.Fprintf(&b, "IPoIB=%s\n", c.name)
					}
				}
			}
			out[fmt.Sprintf("10-%03d.network", i)] = b.String()
			if makeChildren && s.parent != "" {
				// Without MACAddress=none 252 gives the child an address that
				// no subnet manager lets join.
				out[fmt.Sprintf("05-%03d.netdev", i)] = fmt.Sprintf("[NetDev]\nName=%s\nKind=ipoib\nMACAddress=none\n[IPoIB]\nPartitionKey=0x%04x\nMode=%s\n", s.name, s.pkey, mode(s))
			}
		}
		return out
	},
	// 252 reads no [IPoIB] section in a .network file: administrators set the
	// mode with a udev rule.
	extra: func(specs []spec) map[string]string {
		out := map[string]string{}
		for _, s := range specs {
			if s.connected && s.parent == "" {
				out["/etc/udev/rules.d/90-"+s.name+".rules"] = fmt.Sprintf(
					"ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"%s\", RUN+=\"/bin/sh -c 'echo connected > /sys/class/net/%s/mode'\"\n", s.name, s.name)
			}
		}
		return out
	},
}

func mode(s spec) string {
	if s.connected {
		return "connected"
	}
	return "datagram"
}

// configure writes the files of a contestant, in place of all others.
func (c contestant) configure(specs []spec, makeChildren bool) error {
	for _, pat := range []string{unitDir + "/*.network", unitDir + "/*.netdev", unitDir + "/*.ibnetwork", "/etc/udev/rules.d/90-*.rules"} {
		old, err := filepath.Glob(pat)
		if err != nil {
			return err
		}
		for _, f := range old {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	for name, text := range c.files(specs, makeChildren) {
		if err := os.WriteFile(filepath.Join(unitDir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if c.extra != nil {
		for name, text := range c.extra(specs) {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	_, err := run("udevadm", "control", "--reload")
	return err
}

// run runs a program of the guest and puts what it said into the error.
func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
