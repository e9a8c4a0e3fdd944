package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// Programs under test.
const (
	ibnetworkd = "ibnetworkd/cmd/ibnetworkd"
	ibnetctl   = "ibnetworkd/cmd/ibnetctl"
	ibnetsm    = "ibnetworkd/cmd/ibnetsm"
)

// A node is a host of the lab with an ibnetworkd of its own: its own links,
// unit files and state.
type node struct {
	*lab.Host
	g      *lab.G
	units  string // its /etc/systemd/network, as the guest sees it
	daemon *lab.Proc
}

// newNode makes a host and gives it links.
func newNode(g *lab.G, name string, links ...string) *node {
	g.Helper()
	n := &node{Host: g.Host(name), g: g}
	n.units = n.Own("/etc/systemd/network")
	n.Own("/run/ibnetworkd")
	n.Give(links...)
	return n
}

// unit writes a unit file or a drop-in.
func (n *node) unit(name, text string) {
	n.g.Helper()
	path := filepath.Join(n.units, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.g.Fatal(err)
	}
	n.g.Write(path, text)
}

// start runs ibnetworkd.
func (n *node) start(args ...string) {
	n.g.Helper()
	n.daemon = n.Start("ibnetworkd", args...)
}

// status is what ibnetctl says.
func (n *node) status(args ...string) string {
	out, err := n.Try("ibnetctl", append([]string{"status"}, args...)...)
	if err != nil {
		return fmt.Sprintf("ibnetctl status: %v\n%s", err, out)
	}
	return out
}

// waitLink waits until ip -d link says all the words of a link.
func (n *node) waitLink(link string, limit time.Duration, words ...string) time.Duration {
	n.g.Helper()
	return n.g.WaitFor(limit, func() string {
		out, err := n.Try("sh", "-c", "ip -d link show "+link+"; ip -o addr show "+link)
		if err != nil {
			return out
		}
		for _, w := range words {
			if !strings.Contains(out, w) {
				return fmt.Sprintf("%s: %q is missing in\n%s\nibnetworkd:\n%s", link, w, out, n.daemon.Output())
			}
		}
		return ""
	})
}
