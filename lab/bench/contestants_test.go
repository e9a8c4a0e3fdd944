package bench

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

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

// children of a parent among the specs.
func children(specs []spec, parent string) []spec {
	return slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.parent != parent })
}

// A contestant configures links from files, in the way that its own manual
// pages describe.
type contestant struct {
	name  string
	short string // in -against
	// units are what the package enables, in the order in which they are started.
	units []string
	// slice is the control group of all that the contestant runs. It outlives
	// the services in it, and what they used is counted in it.
	slice string
	// inSlice are the units that run there.
	inSlice []string
	// transient says that nothing stays that could be restarted, killed, or idle.
	transient bool
	// manager is the subnet manager of the fabric: "" for ours.
	manager string
	// files renders the configuration, by absolute file names; makeChildren says
	// whether the contestant has to make the children or finds them there.
	files func(specs []spec, makeChildren bool) map[string]string
	// reload applies the changed file of one link.
	reload func(s spec) [][]string
	// after is done once the units are started; at boot it is done by others.
	after [][]string
	// clean removes what is left of a contestant that has ended.
	clean []string
	// says is what its own tool says of a link.
	says func(link string) string
}

func (c contestant) String() string { return c.name }

var ours = contestant{
	name:    "ibnetworkd",
	units:   []string{"ibnetworkd.service"},
	slice:   "bench_ibnetworkd.slice",
	inSlice: []string{"ibnetworkd.service"},
	clean:   []string{"/run/ibnetworkd"},
	reload:  func(spec) [][]string { return [][]string{{"systemctl", "kill", "-s", "HUP", "ibnetworkd"}} },
	says: func(link string) string {
		out, _ := run("ibnetctl", "status", link)
		return lines(out, "Why:", "Next step:")
	},
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
				for _, c := range children(specs, s.name) {
					fmt.Fprintf(&b, "[Partition]\nPartitionKey=0x%04x\nName=%s\nMode=%s\n", c.pkey, c.name, mode(c))
				}
			}
			fmt.Fprintf(&b, "[Network]\nAddress=%s\nIPv6AcceptRA=no\n", s.addr)
			out[fmt.Sprintf("/etc/systemd/network/10-%03d.ibnetwork", i)] = b.String()
		}
		return out
	},
}

var networkd = contestant{
	name:    "systemd-networkd",
	short:   "networkd",
	units:   []string{"systemd-networkd.service"},
	slice:   "bench_networkd.slice",
	inSlice: []string{"systemd-networkd.service"},
	reload:  func(spec) [][]string { return [][]string{{"networkctl", "reload"}} },
	says: func(link string) string {
		out, _ := run("networkctl", "status", "--no-pager", "--lines=0", link)
		return lines(out, "State:", "Online state:")
	},
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
				for _, c := range children(specs, s.name) {
					fmt.Fprintf(&b, "IPoIB=%s\n", c.name)
				}
			}
			out[fmt.Sprintf("/etc/systemd/network/10-%03d.network", i)] = b.String()
			if makeChildren && s.parent != "" {
				// Without MACAddress=none 252 gives the child an address that
				// no subnet manager lets join.
				out[fmt.Sprintf("/etc/systemd/network/05-%03d.netdev",
					i)] = fmt.Sprintf("[NetDev]\nName=%s\nKind=ipoib\nMACAddress=none\n[IPoIB]\nPartitionKey=0x%04x\nMode=%s\n", s.name, s.pkey, mode(s))
			}
			// 252 reads no [IPoIB] section in a .network file: administrators
			// set the mode with a udev rule.
			if s.connected && s.parent == "" {
				out["/etc/udev/rules.d/90-"+s.name+".rules"] = fmt.Sprintf(
					"ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"%s\", RUN+=\"/bin/sh -c 'echo connected > /sys/class/net/%s/mode'\"\n", s.name, s.name)
			}
		}
		return out
	},
}

// networkManager is configured with keyfiles, as nm-settings-keyfile(5) and the
// infiniband setting of nm-settings(5) describe them.
var networkManager = contestant{
	name:  "NetworkManager",
	units: []string{"NetworkManager.service"},
	slice: "bench_NetworkManager.slice",
	// The dispatcher is a part of the package that D-Bus starts on every change.
	inSlice: []string{"NetworkManager.service", "NetworkManager-dispatcher.service"},
	clean:   []string{"/run/NetworkManager"},
	reload: func(s spec) [][]string {
		// nmcli(1): a changed profile is read by the one and applied to a link
		// in use by the other.
		return [][]string{{"nmcli", "connection", "reload"}, {"nmcli", "device", "reapply", s.name}}
	},
	says: func(link string) string {
		out, _ := run("nmcli", "-g", "GENERAL.STATE,GENERAL.REASON", "device", "show", link)
		return strings.TrimSpace(out)
	},
	files: func(specs []spec, makeChildren bool) map[string]string {
		// A profile of a child is the same whether it has to be made or not, but
		// one that others have made and that is down is left alone unless udev
		// says that it is to be managed: NetworkManager.conf(5), managed= of [device].
		out := map[string]string{}
		if !makeChildren {
			out["/etc/udev/rules.d/90-children.rules"] = "SUBSYSTEM==\"net\", ACTION!=\"remove\", KERNEL==\"ib*.*\", ENV{NM_UNMANAGED}=\"0\"\n"
		}
		for i, s := range specs {
			var b strings.Builder
			fmt.Fprintf(&b, "[connection]\nid=%s\nuuid=2b2c3d4e-0000-4000-8000-%012x\ntype=infiniband\ninterface-name=%s\n", s.name, i+1, s.name)
			fmt.Fprintf(&b, "[infiniband]\ntransport-mode=%s\n", mode(s))
			if s.mtu != 0 {
				fmt.Fprintf(&b, "mtu=%d\n", s.mtu)
			}
			if s.parent != "" {
				fmt.Fprintf(&b, "p-key=%d\nparent=%s\n", s.pkey, s.parent)
			}
			fmt.Fprintf(&b, "[ipv4]\nmethod=manual\naddress1=%s\n[ipv6]\nmethod=link-local\n", s.addr)
			out["/etc/NetworkManager/system-connections/"+s.name+".nmconnection"] = b.String()
		}
		return out
	},
}

// ifupdown is configured as interfaces(5) and Debian's wiki describe it: links
// that come and go are allow-hotplug, and udev starts ifup@LINK.service.
var ifupdown = contestant{
	name:      "ifupdown",
	units:     []string{"networking.service"},
	slice:     "bench_ifupdown.slice",
	inSlice:   []string{"networking.service", "ifup@.service"},
	transient: true,
	after:     [][]string{{"udevadm", "trigger", "--action=add", "--subsystem-match=net", "--settle"}},
	clean:     []string{"/run/network"},
	reload:    func(s spec) [][]string { return [][]string{{"systemctl", "restart", "ifup@" + s.name + ".service"}} },
	says: func(link string) string {
		// The link's own job, and those of the children that it makes.
		_, _ = run("sh", "-c", "for i in $(seq 60); do udevadm settle; systemctl list-jobs --no-legend 'ifup@*' | grep -q ifup@ || "+
			"break; sleep 1; done")
		state, _ := run("ifquery", "--state", link)
		unit, _ := run("systemctl", "is-active", "ifup@"+link+".service")
		// Its name is the same for all faults.
		return strings.ReplaceAll(strings.TrimSpace(state), link, "LINK") + ", " + strings.TrimSpace(unit)
	},
	files: func(specs []spec, makeChildren bool) map[string]string {
		out := map[string]string{}
		for _, s := range specs {
			var b strings.Builder
			fmt.Fprintf(&b, "allow-hotplug %s\niface %s inet static\n  address %s\n", s.name, s.name, s.addr)
			if s.mtu != 0 {
				fmt.Fprintf(&b, "  mtu %d\n", s.mtu)
			}
			// Datagram is what a new link has.
			if s.connected {
				fmt.Fprintf(&b, "  pre-up echo connected > /sys/class/net/%s/mode\n", s.name)
			}
			if makeChildren && s.parent == "" {
				for _, c := range children(specs, s.name) {
					fmt.Fprintf(&b, "  up [ -e /sys/class/net/%s ] || echo 0x%04x > /sys/class/net/%s/create_child\n", c.name, c.pkey, s.name)
				}
			}
			out["/etc/network/interfaces.d/"+s.name] = b.String()
		}
		return out
	},
}

// withOpensm is the daemon on a fabric of Debian's opensm instead of ibnetsm:
// a contest of the managers where a port is not Active before one has seen it.
func withOpensm(c contestant) contestant {
	c.name, c.manager, c.short = c.name+" on opensm", "opensm", "opensm"
	return c
}

// past is another build of ours, the file of -past: what has become better or worse since.
var past = func(c contestant) contestant {
	c.name, c.units, c.slice = "past", []string{"ibnetworkd-past.service"}, "bench_past.slice"
	c.inSlice = c.units
	c.reload = func(spec) [][]string { return [][]string{{"systemctl", "kill", "-s", "HUP", c.units[0]}} }
	return c
}(ours)

// all contestants that configure links, ours last: what is left of the others
// is then its trouble.
var all = []contestant{networkd, networkManager, ifupdown, past, ours}

// chosen are the contestants that -against names, and ours.
func chosen(names string) ([]contestant, error) {
	words := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	out := []contestant{}
	for _, c := range all {
		i := slices.IndexFunc(words, func(w string) bool { return w == c.name || w == c.short && w != "" })
		if i >= 0 || c.name == ours.name {
			out = append(out, c)
		}
		if i >= 0 {
			words = slices.Delete(words, i, i+1)
		}
	}
	for _, w := range words {
		if w != "opensm" {
			return nil, fmt.Errorf("-against=%s: no contestant %s; there are networkd, NetworkManager, ifupdown, past and opensm", names, w)
		}
	}
	return out, nil
}

func mode(s spec) string {
	if s.connected {
		return "connected"
	}
	return "datagram"
}

// unconfigure removes the files of all contestants, so that a link that comes up
// between two turns is not configured.
func unconfigure() error {
	for _, pat := range []string{"/etc/systemd/network/*.network", "/etc/systemd/network/*.netdev", "/etc/systemd/network/*.ibnetwork",
		"/etc/udev/rules.d/90-*.rules",
		"/etc/NetworkManager/system-connections/*", "/etc/network/interfaces.d/*"} {
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
	_, err := run("udevadm", "control", "--reload")
	return err
}

// configure writes the files of a contestant, in place of all others.
func (c contestant) configure(specs []spec, makeChildren bool) error {
	if err := unconfigure(); err != nil {
		return err
	}
	for name, text := range c.files(specs, makeChildren) {
		if err := writeConfig(name, text); err != nil {
			return err
		}
	}
	_, err := run("udevadm", "control", "--reload")
	return err
}

// settle waits until udev has seen all links; hundreds take minutes.
func settle() error {
	_, err := run("udevadm", "settle", "--timeout=900")
	return err
}

// writeConfig writes one file. NetworkManager takes no profile that others can
// read; units and rules must be readable.
func writeConfig(name, text string) error {
	perm := os.FileMode(0o644)
	if strings.HasSuffix(name, ".nmconnection") {
		perm = 0o600
	}
	return os.WriteFile(name, []byte(text), perm)
}

// run runs a program of the guest and puts what it said into the error.
func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// lines keeps the lines that contain one of the words.
func lines(text string, words ...string) string {
	var out []string
	for l := range strings.Lines(text) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(l, w) }) {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return strings.Join(out, "\n")
}
