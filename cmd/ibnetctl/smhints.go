package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
)

// routingTimeout bounds the wait for the answer of one subnet manager of this host.
const routingTimeout = 10 * time.Second

// hintFiles are the options of ibnetsm run that name files with hints for routes.
type hintFiles struct{ roots, compute, io, hops, order string }

func (h *hintFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&h.roots, "root-guid-file", "", "the subnet manager takes the roots of ftree and updn from `FILE`")
	f.StringVar(&h.compute, "cn-guid-file", "", "the subnet manager takes the compute nodes from `FILE`")
	f.StringVar(&h.io, "io-guid-file", "", "the subnet manager takes the I/O nodes from `FILE`")
	f.StringVar(&h.hops, "hop-weights-file", "", "the subnet manager takes the lengths of hops from `FILE`")
	f.StringVar(&h.order, "guid-routing-order-file", "", "the subnet manager takes the order of hosts from `FILE`")
}

func (h *hintFiles) given() bool { return *h != hintFiles{} }

// read reads the files into the options of a subnet manager. A line that cannot be used is a
// warning: ibnetsm uses the others.
func (h *hintFiles) read(o *route.Options) (warnings []string, err error) {
	o.Roots, o.Compute, o.IO, o.HopWeights, o.HostOrder = nil, nil, nil, nil, nil
	for _, l := range []struct {
		file string
		to   *[]ib.GUID
	}{{h.roots, &o.Roots}, {h.compute, &o.Compute}, {h.io, &o.IO}, {h.order, &o.HostOrder}} {
		if *l.to, err = readHints(l.file, guidfile.ParseList, &warnings); err != nil {
			return nil, err
		}
	}
	o.HopWeights, err = readHints(h.hops, guidfile.ParseWeights, &warnings)
	return warnings, err
}

func readHints[T any](file string, parse func(string, []byte) ([]T, error), warnings *[]string) ([]T, error) {
	if file == "" {
		return nil, nil
	}
	b, err := readBounded(file, guidfile.MaxFileSize)
	if err != nil {
		return nil, err
	}
	out, err := parse(file, b)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			*warnings = append(*warnings, "a line with hints is not used: "+strings.TrimSuffix(line, "\n"))
		}
	}
	return out, nil
}

// hostRouting is how the subnet managers of this host compute routes.
type hostRouting struct {
	managers []control.Routing
	problems []string // why one did not answer
}

// askRouting queries the subnet managers of this host.
func askRouting(ctx context.Context) (h hostRouting) {
	sockets, err := control.Sockets()
	if err != nil {
		return h
	}
	for _, s := range sockets {
		ctx, cancel := context.WithTimeout(ctx, routingTimeout)
		l, err := control.QueryRouting(ctx, s)
		cancel()
		if err != nil {
			h.problems = append(h.problems, err.Error())
		}
		h.managers = append(h.managers, l...)
	}
	return h
}

// of picks the manager that is the master of a fabric, nil with the reason if it is none of
// this host.
func (h hostRouting) of(f *fabric.Fabric) (m *control.Routing, why string) {
	at, owner := fabric.None, f.LIDs()
	// The own port shows which manager it follows.
	if f.SMPort != fabric.None {
		if l := f.Ports[f.SMPort].Info.MasterSMLID(); l.IsUnicast() && int(l) < len(owner) {
			at = owner[l]
		}
	}
	if at == fabric.None {
		return nil, "the port does not say which subnet manager it follows"
	}
	i := slices.IndexFunc(h.managers, func(m control.Routing) bool { return m.PortGUID == f.Ports[at].GUID && m.State == "Master" })
	if i >= 0 {
		return &h.managers[i], ""
	}
	why = fmt.Sprintf("the subnet manager at %s (GUID %v) is no ibnetsm of this host", f.PortName(at), f.Ports[at].GUID)
	return nil, strings.Join(append([]string{why}, h.problems...), "; ")
}

// hints are what tables are computed with besides the fabric, and where that is from.
type hints struct {
	known bool
	note  string
}

// ofManager completes options with those of the manager of a live fabric. What is given on
// the command line counts first.
func (o *routesOptions) ofManager(r *fabricRoutes, host hostRouting) error {
	m, why := host.of(r.Fabric)
	r.hints = hints{note: why + ": give its files with --root-guid-file and the like"}
	if m != nil {
		r.hints = hints{true, fmt.Sprintf("of the ibnetsm on %s/%d", m.Device, m.Port)}
		to := &r.opt.Route
		if o.engine == "" {
			to.Engine = m.Engine
		}
		to.Roots, to.Compute, to.IO, to.HopWeights, to.HostOrder = m.Roots, m.Compute, m.IO, m.HopWeights, m.HostOrder
		r.opt.Drained, r.opt.QoS = m.Drained, o.qos || m.QoS
		r.Order = m.Order
	}
	return o.ofFiles(r)
}

// ofFiles takes the hints from the files that are given.
func (o *routesOptions) ofFiles(r *fabricRoutes) error {
	if !o.hints.given() {
		return nil
	}
	r.hints = hints{true, "as given"}
	warnings, err := o.hints.read(&r.opt.Route)
	r.warnings = append(r.warnings, warnings...)
	return err
}

// answer is the form for --json.
func (h hints) answer(o *explain.Options) answer.Hints {
	return answer.Hints{Known: h.known, Note: h.note, Roots: len(o.Route.Roots), Compute: len(o.Route.Compute), IO: len(o.Route.IO),
		HopWeights: len(o.Route.HopWeights), HostOrder: len(o.Route.HostOrder), Drained: len(o.Drained)}
}

// words say which hints are used, "" if there are none.
func (h hints) words(o *explain.Options) string {
	var out []string
	for _, n := range []struct {
		n         int
		one, many string
	}{{len(o.Route.Roots), "root", "roots"}, {len(o.Route.Compute), "compute node", "compute nodes"},
		{len(o.Route.IO), "I/O node", "I/O nodes"}, {len(o.Route.HopWeights), "hop weight", "hop weights"},
		{len(o.Route.HostOrder), "host in order", "hosts in order"},
		{len(o.Drained), "drained switch", "drained switches"}} {
		if n.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n.n, plural(n.n, n.one, n.many)))
		}
	}
	switch {
	case !h.known:
		return "not known, none are used: " + h.note
	case out == nil:
		return ""
	}
	return strings.Join(out, ", ") + " (" + h.note + ")"
}

// showHints prints the hints, if there are any or they are not known.
func (a *app) showHints(r *fabricRoutes) {
	if w := r.hints.words(&r.opt); w != "" {
		a.field("Hints", w)
	}
}
