package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/cmd/ibnetctl/report"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/version"
)

// Bounds of what a report takes of the journal.
const (
	reportLines   = "5000"
	reportTimeout = 20 * time.Second
)

// rdmaWords are parts of the names of modules and drivers that RDMA is about.
const rdmaWords = "ib_ rdma mlx4 mlx5 bnxt irdma ice hns hfi1 qib iw_ siw rxe infiniband ipoib swib"

// reportRules are the files of the system that a report copies.
var reportRules = []report.Rule{
	{Glob: "etc/os-release"},
	{Glob: "proc/version"},
	{Glob: "proc/modules", Keep: rdmaWords},
	{Glob: "etc/modprobe.d/*.conf", Keep: rdmaWords},
	{Glob: "etc/modules-load.d/*.conf", Keep: rdmaWords},
	{Glob: "sys/class/infiniband/*/*"},
	{Glob: "sys/class/infiniband/*/ports/*/*"},
	{Glob: "sys/class/infiniband/*/ports/*/counters/*"},
	{Glob: "sys/class/infiniband/*/ports/*/hw_counters/*"},
	{Glob: "sys/class/infiniband/*/ports/*/pkeys/[0-9]"},
	{Glob: "sys/class/infiniband/*/ports/*/gids/[0-9]"},
	{Glob: "sys/class/infiniband/*/ports/*/gid_attrs/*/[0-9]"},
	{Glob: "sys/class/infiniband/*/device/vendor"},
	{Glob: "sys/class/infiniband/*/device/device"},
	{Glob: "sys/class/infiniband/*/device/subsystem_*"},
	{Glob: "sys/class/infiniband/*/device/revision"},
	{Glob: "sys/class/infiniband/*/device/numa_node"},
	{Glob: "sys/class/infiniband/*/device/sriov_*"},
	{Glob: "sys/class/infiniband/*/device/mlx4_port*"},
	{Glob: "sys/class/infiniband_mad/*/*"},
	{Glob: "sys/module/ib_*/parameters/*"},
	{Glob: "sys/module/mlx*/parameters/*"},
	{Glob: "sys/module/bnxt_*/parameters/*"},
	{Glob: "sys/module/irdma/parameters/*"},
	{Glob: "sys/module/hfi1/parameters/*"},
	{Glob: "sys/module/*/version", Keep: "."},
}

// netFiles are the attributes of an interface that a report copies.
var netFiles = []string{"address", "addr_assign_type", "broadcast", "carrier", "carrier_changes", "dev_id", "dev_port", "flags",
	"mode", "mtu", "operstate", "parent",
	"pkey", "speed", "tx_queue_len", "type", "umcast"}

func (a *app) reportCmd() *cobra.Command {
	var plain bool
	c := &cobra.Command{
		Use: "report [FILE]", Short: "write an archive for a bug report", Args: cobra.MaximumNArgs(1),
		Long: `Writes an archive of what the daemon reads on this host, to FILE or to
ibnetwork-report-DATE.tar.gz in the current directory (- for standard output): the
capture that plan and diagnose work on, the daemon's own report, answers of RDMA
netlink, DCB, devlink and drivers, sysfs, udev and module settings of RDMA devices and
of interfaces, the unit files, and the journal of the daemon and the subnet managers.
Its file report.txt lists everything that it contains and everything that was left out.

IP addresses, GUIDs, hardware addresses and the host's name are replaced, equal ones
by equal ones, unless --plain is given. Read the archive before you send it.

Other commands show an archive, or the directory it is unpacked to, in place of
this host: ibnetctl --report FILE status.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at := time.Now().UTC().Truncate(time.Second)
			name := "ibnetwork-report-" + at.Format("20060102-150405")
			file := name + ".tar.gz"
			if len(args) == 1 {
				file = args[0]
			}
			r, err := a.collect(cmd.Context(), plain, at)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := r.Write(&b, name, at); err != nil {
				return err
			}
			if file == "-" {
				a.emitted = true
				_, err = a.out.Write(b.Bytes())
				return err
			}
			if err := renameio.WriteFile(file, b.Bytes(), 0o600); err != nil {
				return ofFile(file, err)
			}
			if a.json {
				return nil
			}
			what := "addresses, GUIDs and names are replaced; read it before you send it"
			if plain {
				what = "it holds your addresses, GUIDs and names"
			}
			fmt.Fprintf(a.err, "wrote %s (%d files, %d KiB, %d things left out): %s\n", file, len(r.Files), (b.Len()+1023)/1024,
				len(r.Omitted), what)
			return nil
		},
	}
	c.Flags().BoolVar(&plain, "plain", false, "replace nothing")
	return c
}

// collect reads the system.
func (a *app) collect(ctx context.Context, plain bool, at time.Time) (*report.Report, error) {
	wait := a.newProgress(false)
	defer wait.done()
	var sys *system
	var err error
	wait.during("reading devices, links and unit files", func() { sys, err = a.observe(ctx) })
	if err != nil {
		return nil, err
	}
	r := &report.Report{}
	add := func(name string, v any) {
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			r.Omit(name, err.Error())
			return
		}
		r.Add(name, append(text, '\n'))
	}
	c := newCapture(sys, at)
	if !plain {
		c.Hidden = []string{"all"}
	}
	add(report.Capture, c)
	d := a.daemonsView(ctx, r)
	if d != nil {
		add(report.Daemon, d)
	}
	wait.during("asking the kernel", func() {
		answers(r, add, sys)
		r.Copy(os.DirFS(cmp.Or(a.root, "/")), append(slices.Clone(reportRules), linkRules(sys)...))
	})
	wait.during("reading the journal", func() { journalInto(ctx, r, a.root, d) })
	r.Omit("/proc/cmdline and the rest of /etc, /proc and /sys", "not about RDMA, or may hold secrets")
	r.Omit("the state of the fabric beyond this host's ports", "not read; ibnetctl sm topology shows it")
	if !plain {
		f := sys.snap.Host.Facts
		hide, err := newHiding([]string{"all"}, f.Hostname, f.MachineID)
		if err != nil {
			return nil, err
		}
		r.Rewrite(hide)
	}
	r.Add(report.Summary, summary(r, at, plain))
	return r, nil
}

// daemonsView is what the daemon describes, nil where it was not asked or does
// not answer.
func (a *app) daemonsView(ctx context.Context, r *report.Report) *api.Description {
	switch {
	case a.noBus:
		r.Omit(report.Daemon, "the daemon was not queried (--no-bus)")
		return nil
	case a.root != "":
		r.Omit(report.Daemon, "the daemon was not queried (--root)")
		return nil
	}
	c, err := connect(ctx)
	if err != nil {
		if d := a.fromReport(err.Error()); d != nil {
			return d
		}
		r.Omit(report.Daemon, err.Error())
		return nil
	}
	defer c.close()
	d, err := c.describe(ctx)
	if err != nil {
		r.Omit(report.Daemon, err.Error())
		return nil
	}
	return d
}

// answers adds what the kernel's own interfaces say.
func answers(r *report.Report, add func(string, any), sys *system) {
	if !sys.live {
		r.Omit("answers of netlink", "not this host (--root)")
		return
	}
	note := func(what string, err error) bool {
		if err != nil {
			r.Omit(what, err.Error())
		}
		return err == nil
	}
	if c, err := rdmanl.Dial(); note(report.RDMA, err) {
		var v struct {
			System  rdmanl.System
			Devices []rdmanl.Device
			Ports   []rdmanl.Port
		}
		var errs [3]error
		v.System, errs[0] = c.System()
		v.Devices, errs[1] = c.Devices()
		v.Ports, errs[2] = c.Ports(v.Devices)
		if note(report.RDMA, errors.Join(errs[:]...)) {
			add(report.RDMA, v)
		}
		_ = c.Close()
	}
	if c, err := dcb.Dial(); note(report.DCB, err) {
		states := map[string]dcb.State{}
		for _, l := range sys.snap.Links {
			if l.Kind != "" || l.Name == "lo" {
				continue
			}
			switch s, err := c.Get(l.Name); {
			case err == nil:
				states[l.Name] = s
			case !errors.Is(err, dcb.ErrNoDCB):
				r.Omit(report.DCB+": "+l.Name, err.Error())
			}
		}
		add(report.DCB, states)
		_ = c.Close()
	}
	if c, err := devlink.Dial(); note(report.Devlink, err) {
		if ports, err := c.Ports(); note(report.Devlink, err) {
			add(report.Devlink, ports)
		}
		_ = c.Close()
	}
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); note(report.Drivers, err) {
		type driver struct{ Driver, Version, Firmware, Bus string }
		drivers := map[string]driver{}
		for _, l := range sys.snap.Links {
			if i, err := unix.IoctlGetEthtoolDrvinfo(fd, l.Name); err == nil {
				word := func(b []byte) string { return strings.ToValidUTF8(unix.ByteSliceToString(b), "?") }
				drivers[l.Name] = driver{word(i.Driver[:]), word(i.Version[:]), word(i.Fw_version[:]), word(i.Bus_info[:])}
			}
		}
		add(report.Drivers, drivers)
		_ = unix.Close(fd)
	}
}

// linkRules are the files of the interfaces that the snapshot has.
func linkRules(sys *system) []report.Rule {
	var out []report.Rule
	for _, l := range sys.snap.Links {
		if strings.ContainsAny(l.Name, `*?[\/`) {
			continue
		}
		for _, f := range netFiles {
			out = append(out, report.Rule{Glob: "sys/class/net/" + l.Name + "/" + f})
		}
		out = append(out, report.Rule{Glob: fmt.Sprintf("run/udev/data/n%d", l.Index)})
	}
	return append(out, report.Rule{Glob: "run/udev/data/+infiniband*"})
}

// journalInto adds the lines of the daemon and the subnet managers since boot.
func journalInto(ctx context.Context, r *report.Report, root string, d *api.Description) {
	if root != "" {
		r.Omit(report.Journal, "not this host (--root)")
		return
	}
	var guids []string
	if d != nil {
		for _, s := range d.SubnetManagers {
			guids = append(guids, s.PortGUID)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	args := journalArgs(guids, false, false, "", true)
	for i := range args {
		if args[i] == "--output=json" {
			args[i] = "--output=short-iso-precise"
		}
	}
	args = append([]string{"--no-hostname", "--lines=" + reportLines}, args...)
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	text, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		why := err.Error()
		if errors.As(err, &ee) && len(ee.Stderr) > 0 {
			why += ": " + strings.TrimSpace(string(ee.Stderr))
		}
		r.Omit(report.Journal, why)
		return
	}
	r.Add(report.Journal, bytes.ToValidUTF8(text, []byte("?")))
}

// summary is the text of the file that says what the report is.
func summary(r *report.Report, at time.Time, plain bool) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Report of ibnetctl %s, %s\n", version.String(), at.Format(time.RFC3339))
	if plain {
		b.WriteString("Nothing is replaced: addresses, GUIDs and names are those of the host.\n")
	} else {
		b.WriteString("IP addresses, GUIDs, hardware addresses and the host's name are replaced, the same by the same.\n")
	}
	b.WriteString("\nLeft out:\n")
	for _, o := range r.Omitted {
		fmt.Fprintf(&b, "  %s: %s\n", o.What, o.Why)
	}
	b.WriteString("\nFiles:\n")
	for _, p := range r.Paths() {
		fmt.Fprintf(&b, "  %8d %s\n", len(r.Files[p]), p)
	}
	return []byte(b.String())
}

// readReport reads an archive or the directory it was unpacked to.
func readReport(name string) (*report.Report, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, opening(err)
	}
	if st.IsDir() {
		r, err := report.ReadDir(name)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return r, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, opening(err)
	}
	defer f.Close()
	r, err := report.Read(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return r, err
}

// recorded is the daemon's description in a report, nil where the report has
// none. It is an error if it cannot be read.
func recorded(r *report.Report) (*api.Description, error) {
	text := r.Files[report.Daemon]
	if text == nil {
		return nil, nil
	}
	var d api.Description
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s of the report: %w", report.Daemon, err)
	}
	if d.Schema != api.DescriptionSchema {
		return nil, fmt.Errorf("%s of the report: it has schema %d, this ibnetctl reads %d: use the ibnetctl of the same version",
			report.Daemon, d.Schema, api.DescriptionSchema)
	}
	return &d, nil
}

// recordedView gives a diagnosis what the daemon knew when the report was made.
func recordedView(in *diagnose.Input, name string) error {
	r, err := readReport(name)
	if err != nil {
		return err
	}
	d, err := recorded(r)
	if d != nil {
		in.Report.Links, in.Report.Ports, in.Report.Notices, in.SMs = d.Links, d.Ports, d.Notices, d.SubnetManagers
	}
	return err
}
