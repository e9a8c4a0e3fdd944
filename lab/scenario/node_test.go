package scenario

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// Programs under test.
const (
	ibnetworkd = "ibnetworkd/cmd/ibnetworkd"
	ibnetctl   = "ibnetworkd/cmd/ibnetctl"
)

// A node is a host of the lab with an ibnetworkd of its own: its own links,
// unit files and state.
type node struct {
	*lab.Host
	g      *lab.G
	root   string // stands for /
	daemon *lab.Proc
}

// newNode makes a host and gives it links.
func newNode(g *lab.G, name string, links ...string) *node {
	g.Helper()
	n := &node{Host: g.Host(name), g: g, root: "/nodes/" + name}
	n.Give(links...)
	g.Exec("mkdir", "-p", n.unitDir(), n.state())
	return n
}

func (n *node) unitDir() string { return n.root + "/etc/systemd/network" }
func (n *node) state() string   { return n.root + "/run/ibnetworkd" }

// unit writes a unit file or a drop-in.
func (n *node) unit(name, text string) {
	n.g.Helper()
	path := filepath.Join(n.unitDir(), name)
	n.g.Exec("mkdir", "-p", filepath.Dir(path))
	n.g.Write(path, text)
}

// start runs ibnetworkd.
func (n *node) start(args ...string) {
	n.g.Helper()
	n.daemon = n.Start("ibnetworkd", append([]string{"--unit-root", n.root, "--state-dir", n.state()}, args...)...)
}

// status is what ibnetctl says.
func (n *node) status(args ...string) string {
	out, err := n.Try("ibnetctl", append([]string{"--root", n.root, "status"}, args...)...)
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
