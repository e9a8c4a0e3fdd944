// Package control is what a running ibnetsm can be asked for over its socket, one line:
// the words, the answers and the client. sm/serve answers.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
)

// DefaultSocket is where a running ibnetsm answers.
const DefaultSocket = "/run/ibnetsm/ibnetsm.sock"

// What can be asked for. Topology and picture take a port after a space, such as mlx5_0/1,
// and are empty where it is not master; routing takes a port by its GUID. Drain and undrain
// take a switch by name or GUID, undrain "all", too; their answer is a list of Drain
// for each subnet.
const (
	AskStatus   = "status"   // JSON: a list of engine.Snapshot
	AskTopology = "topology" // the subnets in ibnetdiscover's form
	AskPicture  = "picture"  // the first subnet as SVG
	AskMetrics  = "metrics"  // counters in Prometheus' text form
	AskResweep  = "resweep"
	AskFull     = "resweep full"
	AskDrain    = "drain"
	AskUndrain  = "undrain"
	AskRouting  = "routing" // JSON: a list of Routing, of one port at most
)

// MaxAsk bounds the bytes of a line that asks.
const MaxAsk = 256

// Drain is a switch that routes avoid.
type Drain struct {
	GUID ib.GUID `json:"guid"`
	Name string  `json:"name,omitempty"` // empty if it is not in the fabric
	// Via is the switch by which alone it is reached.
	Via string `json:"via,omitempty"`
	// Hosts are the ports on it, which are reached in this way only.
	Hosts []string `json:"hosts,omitempty"`
	// Kept are ports to which only this switch leads: routes go through it as before.
	Kept []string `json:"kept,omitempty"`
}

// Drained describes drained switches of a fabric, in the order of their GUIDs.
func Drained(f *fabric.Fabric, switches []ib.GUID) []Drain {
	_, ds := f.Drained(switches)
	out := make([]Drain, 0, len(ds))
	for _, d := range ds {
		c := Drain{GUID: d.GUID}
		if d.Node != fabric.None {
			c.Name = f.Nodes[d.Node].Name()
		}
		if d.Via != fabric.None {
			c.Via = f.Nodes[d.Via].Name()
		}
		for _, p := range d.Hosts {
			c.Hosts = append(c.Hosts, f.PortName(p))
		}
		for _, p := range d.Behind {
			c.Kept = append(c.Kept, f.PortName(p))
		}
		out = append(out, c)
	}
	return out
}

// Words say what becomes of the switch.
func (d *Drain) Words() string {
	switch {
	case d.Name == "":
		return fmt.Sprintf("%s, not in the subnet", d.GUID)
	case len(d.Kept) > 0:
		return fmt.Sprintf("%s (%s) stays in the routes: nothing else leads to %s", d.Name, d.GUID, some(d.Kept))
	case len(d.Hosts) > 0:
		return fmt.Sprintf("%s (%s); ports on it, which lose the subnet with it: %s", d.Name, d.GUID, some(d.Hosts))
	}
	return fmt.Sprintf("%s (%s); nothing passes through it", d.Name, d.GUID)
}

// some names the first of many.
func some(names []string) string {
	const most = 8
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Routing is how a subnet manager computes routes: its options, and what its tables in
// force keep to.
type Routing struct {
	Device   string  `json:"device"`
	Port     uint8   `json:"port"`
	PortGUID ib.GUID `json:"port_guid"`
	State    string  `json:"state"`            // Master, Standby, ...
	Engine   string  `json:"engine,omitempty"` // as configured, empty for the automatic choice
	QoS      bool    `json:"qos"`              // service levels are used
	// Levels is how many of them routes may use, 0 where it is not known; none where
	// OwnLevels reports that levels are chosen for something else.
	Levels     int               `json:"levels,omitempty"`
	OwnLevels  bool              `json:"own_levels,omitempty"`
	Roots      []ib.GUID         `json:"roots,omitempty"`
	Compute    []ib.GUID         `json:"compute_nodes,omitempty"`
	IO         []ib.GUID         `json:"io_nodes,omitempty"`
	HopWeights []guidfile.Weight `json:"hop_weights,omitempty"`
	HostOrder  []ib.GUID         `json:"host_order,omitempty"`
	Drained    []ib.GUID         `json:"drained,omitempty"`
	LMC        ib.LMC            `json:"lmc"` // of adapter ports
	// InForce is the engine of the tables in force, empty where there are none yet, and
	// Layers how many service levels they use. Order are the switches by node GUID from the
	// top down, where that engine has such an order.
	InForce string    `json:"in_force,omitempty"`
	Layers  int       `json:"layers,omitempty"`
	Order   []ib.GUID `json:"order,omitempty"`
	// BusiestLink, AtBest and WhyNotTree are of the tables in force, see route.Result.
	BusiestLink float64 `json:"busiest_link_flows,omitempty"`
	AtBest      float64 `json:"busiest_link_at_best,omitempty"`
	WhyNotTree  string  `json:"why_not_ftree,omitempty"`
	// SL are the service levels of paths between the switches of At, where more than one is
	// needed, and Trunk the ports of these switches on the tree that all multicast takes.
	At    []ib.GUID `json:"at,omitempty"`
	SL    [][]byte  `json:"sl,omitempty"`
	Trunk []byte    `json:"trunk,omitempty"`
}

// Words describes the tables in force.
func (r *Routing) Words() string {
	if r.InForce == "" {
		return "none yet"
	}
	out := r.InForce
	if r.Layers > 1 {
		out += fmt.Sprintf(" on %d service levels", r.Layers)
	}
	if r.BusiestLink > 0 {
		out += fmt.Sprintf(", busiest link %.0f pairs of hosts, %.0f at best", r.BusiestLink, r.AtBest)
	}
	if r.WhyNotTree != "" {
		out += "; not ftree: " + r.WhyNotTree
	}
	return out
}

// MostLevels is of how many switches Routing has SL: what is left out is not known.
const MostLevels = 2500

// whole reports whether the levels are those of all pairs of switches.
func (r *Routing) whole() bool {
	n := len(r.At)
	return (len(r.SL) == 0 || len(r.SL) == n) && (len(r.Trunk) == 0 || len(r.Trunk) == n) &&
		!slices.ContainsFunc(r.SL, func(row []byte) bool {
			return len(row) != n || slices.ContainsFunc(row, func(l byte) bool { return l > 15 })
		})
}

// MaxRouting bounds the bytes of an answer to AskRouting: a million GUIDs.
const MaxRouting = 24 << 20

// QueryRouting gives how the manager at a socket computes the routes of the subnet that it
// serves from the port with a GUID, nil if it has no such port. The error is ErrOld for an
// ibnetsm that does not know the request.
func QueryRouting(ctx context.Context, path string, port ib.GUID) (*Routing, error) {
	var b bounded
	if err := Ask(ctx, path, AskRouting+" "+port.String(), &b); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(b.Bytes(), []byte("unknown request")) {
		return nil, ErrOld
	}
	out, err := parseRouting(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	for i := range out {
		if out[i].PortGUID == port {
			return &out[i], nil
		}
	}
	return nil, nil
}

// ErrOld is the error of QueryRouting for an ibnetsm from before AskRouting.
var ErrOld = errors.New("it is older than this program and does not report how it computes routes")

// parseRouting reads the answer to AskRouting, of at most MaxRouting bytes.
func parseRouting(b []byte) (out []Routing, err error) {
	if len(b) > MaxRouting {
		return nil, errTooLong
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, err
	}
	for i := range out {
		if !out[i].whole() {
			return nil, errors.New("it has other service levels than those of its switches")
		}
	}
	return out, nil
}

var errTooLong = fmt.Errorf("more than %d bytes", MaxRouting)

// bounded is a buffer of at most MaxRouting bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxRouting {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

// Drains is the answer to drain and undrain of one subnet.
type Drains struct {
	Device  string  `json:"device"`
	Port    uint8   `json:"port"`
	State   string  `json:"state"` // Master, Standby, ...
	Problem string  `json:"problem,omitempty"`
	Drained []Drain `json:"drained"`
}

// Sockets lists those of the managers that run.
func Sockets() ([]string, error) {
	l, err := filepath.Glob(filepath.Join(filepath.Dir(DefaultSocket), "*.sock"))
	if err == nil && len(l) == 0 {
		err = fmt.Errorf("no ibnetsm is running on this host (no socket in %s); to start one: ibnetctl sm start PORT; "+
			"to find the master: ibnetctl sm status", filepath.Dir(DefaultSocket))
	}
	return l, err
}

// Ask sends a request to a running ibnetsm and copies the answer.
func Ask(ctx context.Context, path, what string, w io.Writer) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("only root and the group ibnetsm may query the ibnetsm at %s: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("no ibnetsm answers at %s: %w", path, err)
	}
	defer c.Close()
	if dl, ok := ctx.Deadline(); ok {
		c.SetDeadline(dl)
	}
	if _, err := fmt.Fprintln(c, what); err != nil {
		return err
	}
	// Not by splice: a reader that has gone, as head, ends the program without a
	// word then, as it does any other.
	_, err = io.Copy(struct{ io.Writer }{w}, c)
	return err
}
