package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
	"ibnetworkd/smctl/probe"
)

// routingTimeout bounds the wait for the answers of the subnet managers of this host.
const routingTimeout = 10 * time.Second

// hintFiles are the options of ibnetsm run that name files with hints for routes.
type hintFiles struct {
	roots, compute, io, hops, order string
	drained                         []string // switches, by name or GUID
}

func (h *hintFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&h.roots, "root-guid-file", "", "the subnet manager takes the roots of ftree and updn from `FILE`")
	f.StringVar(&h.compute, "cn-guid-file", "", "the subnet manager takes the compute nodes from `FILE`")
	f.StringVar(&h.io, "io-guid-file", "", "the subnet manager takes the I/O nodes from `FILE`")
	f.StringVar(&h.hops, "hop-weights-file", "", "the subnet manager takes the lengths of hops from `FILE`")
	f.StringArrayVar(&h.drained, "drained", nil, "the subnet manager keeps routes off `SWITCH`; may be repeated")
	f.StringVar(&h.order, "guid-routing-order-file", "", "the subnet manager takes the order of hosts from `FILE`")
}

func (h *hintFiles) given() bool {
	return h.roots+h.compute+h.io+h.hops+h.order != "" || len(h.drained) > 0
}

// read replaces the lists of a subnet manager's options for which there is a file, and
// names them. A line that cannot be used is a warning: ibnetsm uses the others.
func (h *hintFiles) read(o *route.Options) (replaced, warnings []string, err error) {
	for _, l := range []struct {
		file, name string
		to         *[]ib.GUID
	}{{h.roots, "roots", &o.Roots}, {h.compute, "compute nodes", &o.Compute}, {h.io, "I/O nodes", &o.IO},
		{h.order, "order of hosts", &o.HostOrder}} {
		if l.file == "" {
			continue
		}
		if *l.to, err = readHints(l.file, guidfile.ParseList, &warnings); err != nil {
			return nil, nil, err
		}
		replaced = append(replaced, l.name)
	}
	if h.hops != "" {
		o.HopWeights, err = readHints(h.hops, guidfile.ParseWeights, &warnings)
		replaced = append(replaced, "hop weights")
	}
	return replaced, warnings, err
}

func readHints[T any](file string, parse func(string, []byte) ([]T, error), warnings *[]string) ([]T, error) {
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

// routingQuery gives how the subnet manager on a port of this host computes routes, nil
// where a manager of this host does not have that port. problem is why one did not say.
type routingQuery func(ctx context.Context, port ib.GUID) (m *control.Routing, problem string)

// queryRouting queries the subnet managers of this host, all at one time.
func queryRouting(ctx context.Context, port ib.GUID) (m *control.Routing, problem string) {
	sockets, err := control.Sockets()
	if err != nil {
		return nil, "" // none is running
	}
	return querySockets(ctx, sockets, port)
}

func querySockets(ctx context.Context, sockets []string, port ib.GUID) (m *control.Routing, problem string) {
	ctx, cancel := context.WithTimeout(ctx, routingTimeout)
	defer cancel()
	type result struct {
		m   *control.Routing
		err error
	}
	got := make([]result, len(sockets))
	var wg sync.WaitGroup
	for i, s := range sockets {
		wg.Go(func() { got[i].m, got[i].err = control.QueryRouting(ctx, s, port) })
	}
	wg.Wait()
	for i, r := range got {
		switch {
		case r.m != nil:
			return r.m, ""
		case r.err != nil && problem == "":
			problem = routingProblem(sockets[i], r.err)
		}
	}
	return nil, problem
}

// routesOf is what is shown of a manager's tables, nil without any.
func routesOf(m *control.Routing) *answer.Routes {
	if m == nil || m.State != "Master" || m.InForce == "" {
		return nil
	}
	return &answer.Routes{Engine: m.InForce, Layers: m.Layers, BusiestLink: m.BusiestLink, AtBest: m.AtBest, WhyNotTree: m.WhyNotTree,
		Words: m.Words()}
}

// askRoutes completes the status of a port with the tables of the manager of this host.
func askRoutes(ctx context.Context, m *answer.Manager, query routingQuery) {
	if g, err := ib.ParseGUID(m.PortGUID); err == nil {
		tables, _ := query(ctx, g)
		m.Routes = routesOf(tables)
	}
}

// routingProblem returns why a manager did not report how it computes routes, and the next step.
func routingProblem(socket string, err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "" // it has ended
	case errors.Is(err, control.ErrOld):
		return fmt.Sprintf("the ibnetsm at %s is older than ibnetctl and does not report how it computes routes: restart it", socket)
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("the ibnetsm at %s answers root only: run this as root", socket)
	}
	return fmt.Sprintf("the ibnetsm at %s does not report how it computes routes (%v): restart it if that persists", socket, err)
}

// masterOf finds the manager that is the master of a fabric; nil with the reason, and the
// next step, if none of this host reports to be it.
func masterOf(ctx context.Context, conn probe.Conn, f *fabric.Fabric, query routingQuery) (m *control.Routing, why string, err error) {
	const files = "give its files with --root-guid-file and the like"
	at, lid, owner := fabric.None, ib.LID(0), f.LIDs()
	// The own port shows which manager it follows.
	if f.SMPort != fabric.None {
		if lid = f.Ports[f.SMPort].Info.MasterSMLID(); lid.IsUnicast() && int(lid) < len(owner) {
			at = owner[lid]
		}
	}
	if at == fabric.None {
		return nil, "the port does not report its subnet manager: " + files, nil
	}
	switch m, problem := query(ctx, f.Ports[at].GUID); {
	case m != nil && m.State == "Master":
		return m, "", nil
	case m != nil:
		return nil, fmt.Sprintf("the ibnetsm on %s/%d is %s, not Master: run the command again when it is", m.Device, m.Port, m.State), nil
	case problem != "":
		return nil, problem, nil
	}
	found, err := probe.AskLID(ctx, conn, lid)
	if err != nil {
		return nil, "", err
	}
	what := "answers and is not an ibnetsm of this host: " + files
	if len(found) == 0 {
		what = fmt.Sprintf("does not answer at LID %d: start a subnet manager (ibnetctl sm status), or %s", uint16(lid), files)
	}
	return nil, fmt.Sprintf("the subnet manager at %s (GUID %v) %s", f.PortName(at), f.Ports[at].GUID, what), nil
}

// hints are what tables are computed with besides the fabric, and where that is from.
type hints struct {
	known    bool           // all of them
	from     string         // the manager that reported them, empty for none
	why      string         // they are not known
	routes   *answer.Routes // of that manager
	replaced []string
}

// ofManager completes options with those of the manager of a live fabric. What is given on
// the command line overrides it.
func (o *routesOptions) ofManager(ctx context.Context, conn probe.Conn, r *fabricRoutes, query routingQuery) error {
	m, why, err := masterOf(ctx, conn, r.Fabric, query)
	if err != nil {
		return err
	}
	r.hints = hints{why: why}
	if m != nil {
		r.hints = hints{known: true, from: fmt.Sprintf("the ibnetsm on %s/%d", m.Device, m.Port), routes: routesOf(m)}
		to := &r.opt.Route
		to.Roots, to.Compute, to.IO, to.HopWeights, to.HostOrder = m.Roots, m.Compute, m.IO, m.HopWeights, m.HostOrder
		r.opt.Drained, r.opt.LMC = m.Drained, &m.LMC
		r.InForce(route.Result{Engine: m.InForce, NumLayers: m.Layers, Order: m.Order, SL: m.SL, Trunk: m.Trunk}, m.At, &r.opt)
		if o.engine == "" {
			to.Engine = m.Engine
		}
		to.OwnLevels = m.OwnLevels
		if !o.qosGiven {
			r.opt.QoS, r.opt.Levels = m.QoS, m.Levels
		}
	}
	return o.ofFiles(r, r.Fabric)
}

// ofFiles takes the hints that are given: those of files, and the drained switches of f.
func (o *routesOptions) ofFiles(r *fabricRoutes, f *fabric.Fabric) error {
	replaced, warnings, err := o.hints.read(&r.opt.Route)
	if len(o.hints.drained) > 0 {
		replaced, r.opt.Drained = append(replaced, "drained switches"), nil
	}
	for _, word := range o.hints.drained {
		g, e := switchOf(f, word)
		if e != nil {
			return named(fmt.Errorf("--drained: %w", e))
		}
		r.opt.Drained = append(r.opt.Drained, g)
	}
	r.hints.replaced = replaced
	r.warnings = append(r.warnings, warnings...)
	return err
}

// note returns where the hints are from, "" if there are none.
func (h *hints) note() string {
	given := ""
	if len(h.replaced) > 0 {
		given = strings.Join(h.replaced, ", ") + " as given"
	}
	switch {
	case !h.known && given != "":
		return given + "; others are not known: " + h.why
	case !h.known:
		return h.why
	case h.from == "" && given != "":
		return "as given"
	case h.from != "" && given != "":
		return "of " + h.from + "; " + given
	case h.from != "":
		return "of " + h.from
	}
	return ""
}

// answer is the form for --json.
func (h *hints) answer(o *explain.Options) answer.Hints {
	return answer.Hints{Known: h.known, Note: h.note(), Roots: len(o.Route.Roots), Compute: len(o.Route.Compute), IO: len(o.Route.IO),
		HopWeights: len(o.Route.HopWeights), HostOrder: len(o.Route.HostOrder), Drained: len(o.Drained)}
}

// words say which hints are used, "" if there are none.
func (h *hints) words(o *explain.Options) string {
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
	case !h.known && len(h.replaced) == 0:
		return "not known, none are used: " + h.why
	case out == nil && h.known:
		return ""
	}
	return cmp.Or(strings.Join(out, ", "), "none") + " (" + h.note() + ")"
}

// showHints prints the hints, if there are any or they are not known.
func (a *app) showHints(r *fabricRoutes) {
	if w := r.hints.words(&r.opt); w != "" {
		a.field("Hints", w)
	}
}
