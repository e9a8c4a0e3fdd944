package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/ib/partition"
	"ibnetworkd/link"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
	"ibnetworkd/smctl/probe"
)

// maxFabricText bounds in bytes what is read of a fabric: 48,000 hosts are 30 MB.
const maxFabricText = 256 << 20

// routesOptions are where a fabric with its forwarding tables comes from, and how
// the subnet manager that routes it is configured.
type routesOptions struct {
	file, port, names, partitions string
	engine                        string
	hints                         hintFiles
	qos, qosGiven                 bool
	tablesOnly                    bool // how the tables were made is of no interest
	timeout                       *time.Duration
}

func (o *routesOptions) flags(a *app, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.file, "file", "", "read the fabric from `FILE`, in the format of ibnetdiscover (- for standard input), and "+
		"compute the tables")
	f.StringVar(&o.port, "port", "", "read the fabric from `PORT` (default: the first InfiniBand port with a link)")
	f.StringVar(&o.names, "node-name-map", "", "take the names of nodes from `FILE`, as those of ibnetsm")
	f.StringVar(&o.engine, "routing", "", "the `ENGINE` of the subnet manager (default: chosen automatically)")
	f.BoolVar(&o.qos, "qos", false, "the subnet manager uses service levels and virtual lanes (ibnetsm --qos)")
	o.hints.flags(f)
	o.timeout = timeoutFlag(c, time.Minute, "give up reading the fabric after `TIME`")
	c.MarkFlagsMutuallyExclusive("file", "port")
	_ = c.RegisterFlagCompletionFunc("port", a.completePorts)
	_ = c.RegisterFlagCompletionFunc("drained", o.completeNodes)
	_ = c.RegisterFlagCompletionFunc("routing", cobra.FixedCompletions(append([]string{"auto"}, route.Engines...),
		cobra.ShellCompDirectiveNoFileComp))
}

// check refuses what no subnet manager takes.
func (o *routesOptions) check() error {
	if o.engine == "" {
		return nil
	}
	if err := route.CheckEngines(o.engine); err != nil {
		return fail(exitUsage, "--routing: %w", err)
	}
	return nil
}

func (o *routesOptions) options() explain.Options {
	return explain.Options{Route: route.Options{Engine: o.engine, Processors: runtime.NumCPU()}, QoS: o.qos, Partitions: partition.Default()}
}

// fabricRoutes is a fabric with its tables, as a command works on it.
type fabricRoutes struct {
	*explain.Routes
	opt      explain.Options // with which ibnetsm computes tables
	hints    hints
	source   string
	note     string // how the engine is known, or why it is not
	warnings []string
}

// withRoutes reads the fabric and its tables, and calls do with them; conn is nil
// for those of a file.
func (a *app) withRoutes(cmd *cobra.Command, o *routesOptions, do func(ctx context.Context, conn probe.Conn, r *fabricRoutes) error) error {
	if err := o.check(); err != nil {
		return err
	}
	o.qosGiven = cmd.Flags().Changed("qos")
	names, err := readNames(o.names)
	if err != nil {
		return err
	}
	if o.file != "" {
		r, err := a.routesOfFile(o, names)
		if err != nil {
			return err
		}
		return do(cmd.Context(), nil, r)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), *o.timeout)
	defer cancel()
	dev, num, err := a.livePort(ctx, o.port)
	if err != nil {
		return err
	}
	conn, err := probe.Open(ctx, dev, num)
	if err != nil {
		return fmt.Errorf("%s/%d: %w; to work on a recorded fabric: --file", dev, num, err)
	}
	defer conn.Close()
	r, err := liveRoutes(ctx, conn, o, names, queryRouting)
	if err == nil {
		r.source = fmt.Sprintf("%s/%d", dev, num)
		err = do(ctx, conn, r)
	}
	if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
		return fail(exitTimeout, "%s/%d: the fabric was not read within %v; for more time: --timeout", dev, num, *o.timeout)
	}
	return err
}

// livePort is the InfiniBand port to read a fabric from.
func (a *app) livePort(ctx context.Context, name string) (dev string, num int, err error) {
	sys, err := a.observe(ctx)
	if err != nil {
		return "", 0, err
	}
	d := sys.describe("")
	if name != "" {
		p := findPort(d, name)
		if p == nil {
			return "", 0, noPort(name)
		}
		return p.IBDevice, p.Port, nil
	}
	i := slices.IndexFunc(d.Ports, func(p link.PortStatus) bool { return p.LinkLayer == "InfiniBand" && p.PhysState == "LinkUp" })
	if i < 0 {
		return "", 0, fail(exitNoSuch, "no InfiniBand port of this host has a link; to use a recorded fabric: --file")
	}
	return d.Ports[i].IBDevice, d.Ports[i].Port, nil
}

// liveRoutes reads the tables in force.
func liveRoutes(ctx context.Context, conn probe.Conn, o *routesOptions, names fabric.Names, query routingQuery) (
	*fabricRoutes, error) {
	t, warnings, err := probe.Tables(ctx, conn)
	if err != nil {
		return nil, err
	}
	t.Fabric = names.Apply(t.Fabric)
	r := &fabricRoutes{Routes: t, opt: o.options(), warnings: warnings}
	errNoLIDs := fail(exitFailure, "no port of the fabric has a LID: no subnet manager has configured it; for its state: ibnetctl sm status")
	if o.tablesOnly {
		if !slices.ContainsFunc(t.Fabric.Ports, func(p fabric.Port) bool { return p.LID.IsUnicast() }) {
			return nil, errNoLIDs
		}
		return r, nil
	}
	if err := o.ofManager(ctx, conn, r, query); err != nil {
		return nil, err
	}
	if n := t.Inactive(); n > 0 {
		r.warnings = append(r.warnings, fmt.Sprintf("%d %s between switches %s not Active and left out here: if the subnet manager is "+
			"still configuring the fabric, repeat this in a minute", n, plural(n, "link", "links"), plural(n, "is", "are")))
	}
	differ, of, err := t.Recognize(r.opt)
	switch {
	case errors.Is(err, route.ErrNoLIDs):
		return nil, errNoLIDs
	case err != nil:
		return nil, err
	}
	r.warnings = append(r.warnings, t.Warnings...)
	switch {
	case differ == 0:
		r.note = "ibnetsm would keep every entry of the tables"
	case r.hints.from != "":
		r.note = fmt.Sprintf("as %s reports; a new computation would change %d of %d entries", r.hints.from, differ, of)
	case !r.hints.known:
		r.note = fmt.Sprintf("ibnetsm would change %d of %d entries, so another engine, hints or another subnet manager made them", differ, of)
	default:
		r.note = fmt.Sprintf("ibnetsm would change %d of %d entries, so another engine or subnet manager made them", differ, of)
	}
	return r, nil
}

// routesOfFile computes the tables of a recorded fabric.
func (a *app) routesOfFile(o *routesOptions, names fabric.Names) (*fabricRoutes, error) {
	in := io.Reader(a.in)
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, opening(err)
		}
		defer f.Close()
		in = f
	}
	f, err := fabric.ReadText(o.file, io.LimitReader(in, maxFabricText))
	if err != nil {
		return nil, err
	}
	f = names.Apply(f)
	r := &fabricRoutes{opt: o.options(), hints: hints{known: true}, source: o.file, note: "computed from the file, as ibnetsm does"}
	if err := o.ofFiles(r, f); err != nil {
		return nil, err
	}
	if o.partitions != "" {
		b, err := readBounded(o.partitions, partition.MaxFileSize)
		if err != nil {
			return nil, err
		}
		if r.opt.Partitions, err = partition.Parse(o.partitions, b); err != nil {
			return nil, err
		}
	}
	if r.Routes, err = explain.Compute(f, r.opt, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	r.warnings = append(r.warnings, r.Routes.Warnings...)
	return r, nil
}

func readNames(file string) (fabric.Names, error) {
	if file == "" {
		return nil, nil
	}
	b, err := readBounded(file, maxFabricText)
	if err != nil {
		return nil, err
	}
	return fabric.ParseNames(file, b)
}

// readBounded reads a file of at most so many bytes.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, opening(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, fail(exitFailure, "%s: larger than %d bytes", name, most)
	}
	return b, err
}

// completeNodes completes names of nodes of the fabric in --file; the live fabric is
// not read for that.
func (o *routesOptions) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	if f, err := os.Open(o.file); o.file != "" && err == nil {
		defer f.Close()
		if fab, err := fabric.ReadText(o.file, io.LimitReader(f, maxFabricText)); err == nil {
			for i := range fab.Nodes {
				out = append(out, fmt.Sprintf("%s\t%s", fab.Nodes[i].Name(), fab.Nodes[i].GUID))
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// named gives an error of a name its exit code.
func named(err error) error {
	var no *explain.UnknownError
	var many *explain.AmbiguousError
	switch {
	case errors.As(err, &no):
		return &exitError{exitNoSuch, err}
	case errors.As(err, &many):
		return &exitError{exitUsage, err}
	}
	return err
}

// engineWords is the engine of tables and how it is known.
func (r *fabricRoutes) engineWords() string {
	return fmt.Sprintf("%s (%s)", cmp.Or(r.Engine, "not known"), r.note)
}
