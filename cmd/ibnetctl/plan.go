package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/report"
	"ibnetworkd/daemon/plan"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/internal/version"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// captureSchema is the version of capture files.
const captureSchema = 1

// capture is a recorded system: enough to plan on it elsewhere.
type capture struct {
	Schema   int              `json:"ibnetctl_capture"`
	Version  string           `json:"version"`
	At       time.Time        `json:"at"`
	Hidden   []string         `json:"hidden,omitempty"`
	Snapshot *link.Snapshot   `json:"snapshot"`
	Record   *link.Record     `json:"record,omitempty"`
	Units    []capturedUnit   `json:"units"`
	Modules  map[string]bool  `json:"modules,omitempty"`
	Report   *json.RawMessage `json:"daemon,omitempty"`
}

// capturedUnit is one file of a unit directory, or an address table.
type capturedUnit struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// maxCapture bounds what is read of a capture file: 10,000 links are 20 MB.
const maxCapture = 256 << 20

func (a *app) captureCmd() *cobra.Command {
	var hide []string
	c := &cobra.Command{
		Use: "capture FILE", Short: "record this system for a bug report or for plan --from", Args: cobra.ExactArgs(1),
		Long: `Writes the input of ibnetctl plan and ibnetctl diagnose to FILE (- for standard
output): devices, ports, links, addresses, routes, and the unit files. Nothing
else is read.

--hide addresses replaces every IP address, --hide guids every GUID and hardware
address, --hide names the host's name and machine ID. Equal values get equal
replacements, and addresses stay within their prefixes.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			sys, err := a.observe(cmd.Context())
			if err != nil {
				return err
			}
			c := newCapture(sys, time.Now().UTC().Truncate(time.Second))
			c.Hidden = hide
			var text []byte
			if text, err = json.MarshalIndent(c, "", " "); err != nil {
				return err
			}
			if text, err = hideIn(text, hide, sys.snap); err != nil {
				return err
			}
			text = append(text, '\n')
			if args[0] == "-" {
				a.emitted = true // a capture is JSON itself
				_, err = a.out.Write(text)
				return err
			}
			if err := renameio.WriteFile(args[0], text, 0o600); err != nil {
				return ofFile(args[0], err)
			}
			if len(hide) == 0 {
				fmt.Fprintf(a.err, "wrote %s; it contains addresses, GUIDs and unit files (see --hide)\n", args[0])
			} else {
				fmt.Fprintf(a.err, "wrote %s; hidden: %s; check it before you send it\n", args[0], strings.Join(hide, ", "))
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&hide, "hide", nil, "replace `WHAT`: addresses, guids, names, or all")
	_ = c.RegisterFlagCompletionFunc("hide",
		cobra.FixedCompletions([]string{"addresses", "guids", "names", "all"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func newCapture(sys *system, at time.Time) *capture {
	c := &capture{Schema: captureSchema, Version: version.String(), At: at, Snapshot: sys.snap, Record: sys.record,
		Units: []capturedUnit{}, Modules: modules()}
	for _, u := range sys.set.Units {
		for _, f := range u.Files {
			c.Units = append(c.Units, capturedUnit{f.Path, f.Text})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(sys.set.Tables)) {
		if t := sys.set.Tables[p].Text; t != "" {
			c.Units = append(c.Units, capturedUnit{p, t})
		}
	}
	return c
}

// readCapture reads a capture file, or the capture of a report, and plans on it.
func readCapture(name string, unitDir string) (*system, *capture, error) {
	text, err := captureText(name)
	if err != nil {
		return nil, nil, err
	}
	c, err := decodeCapture(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	var set *units.Set
	if unitDir != "" {
		if set, err = unitsIn(unitDir); err != nil {
			return nil, nil, err
		}
	} else {
		set = units.Load(capturedRoots(c.Units)).WithTables(nil, c.table)
	}
	rec := c.Record
	if rec == nil {
		rec = &link.Record{}
	}
	return newSystem(c.Snapshot, set, rec), c, nil
}

// captureText is the text of a capture file, or of the capture in a report.
func captureText(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, opening(err)
	}
	defer f.Close()
	head := make([]byte, 2)
	n, err := f.ReadAt(head, 0)
	if st, e := f.Stat(); e == nil && st.IsDir() || err == nil && report.IsArchive(head[:n]) {
		r, err := readReport(name)
		if err != nil {
			return nil, err
		}
		return r.Files[report.Capture], nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCapture+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxCapture {
		return nil, fmt.Errorf("%s: larger than %d bytes, not a capture", name, maxCapture)
	}
	return text, nil
}

// unitsIn reads the unit files of one directory.
func unitsIn(dir string) (*units.Set, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, opening(err)
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return units.Load([]units.Root{{Path: dir, FS: unitfs.New("/", full)}}).WithTables(nil, func(path string) ([]byte, error) {
		return unitfs.ReadFile("/", path, units.MaxTable)
	}), nil
}

func decodeCapture(text []byte) (*capture, error) {
	var c capture
	if err := json.Unmarshal(text, &c); err != nil {
		var se *json.SyntaxError
		if errors.As(err, &se) {
			line := 1 + strings.Count(string(text[:min(int(se.Offset), len(text))]), "\n")
			return nil, fmt.Errorf("line %d: not JSON: %w", line, err)
		}
		return nil, fmt.Errorf("not a capture: %w", err)
	}
	switch {
	case c.Schema == 0 || c.Snapshot == nil:
		return nil, errors.New("not a file that ibnetctl capture wrote")
	case c.Schema != captureSchema:
		return nil, fmt.Errorf("written by ibnetctl %s with schema %d, but this ibnetctl reads schema %d", c.Version, c.Schema, captureSchema)
	}
	if err := c.Snapshot.Check(); err != nil {
		return nil, fmt.Errorf("written by ibnetctl %s: %w", c.Version, err)
	}
	return &c, nil
}

// table is the text of an address table.
func (c *capture) table(path string) ([]byte, error) {
	for _, f := range c.Units {
		if f.Path == path {
			return []byte(f.Text), nil
		}
	}
	return nil, fs.ErrNotExist
}

// capturedRoots makes the unit directories of a capture.
func capturedRoots(files []capturedUnit) []units.Root {
	var out []units.Root
	for _, d := range units.Dirs {
		m := fstest.MapFS{}
		for _, f := range files {
			if rel, ok := strings.CutPrefix(path.Clean(f.Path), d+"/"); ok {
				addText(m, rel, f.Text)
			}
		}
		if len(m) > 0 {
			out = append(out, units.Root{Path: d, FS: m})
		}
	}
	return out
}

func (a *app) planCmd() *cobra.Command {
	var from, unitDir, list string
	c := &cobra.Command{
		Use: "plan", Short: "show what would be changed, without changing it", Args: cobra.NoArgs,
		Annotations: map[string]string{paged: "yes"},
		Long: `Prints what the daemon would do now to configure every link as its unit specifies,
as the commands that an administrator would type. Comments give what has to wait or
cannot be done, with the reason, and side effects of commands (a port that goes
down and up). Nothing is changed. An empty plan means that every link with a
unit is configured. Starts, stops, reloads and restarts of subnet managers are
included if the daemon is running.

The unit files are read as they are now. A daemon that watches them applies an
edit when it is saved, so it may be applying this plan already; ibnetctl edit and
ibnetctl try show the plan of a file before it is installed. With --from, the plan is
for a recorded system (ibnetctl capture).

With --hosts, it prints the addresses that the unit files give each host of a list, and
those that two hosts would share. A line of FILE is the name of a host and what is known
of it: LINK, LINK=GUID or GUID for a link to plan for, LINK=ADDRESS/LENGTH for the
address of a link that others are derived from. If a unit applies only under a key of
[Match] that the list does not answer, such as Type=, the key is named, and the unit
that applies otherwise follows. Links with [Bond] add a line for the bond. Exits 1 if an
address is missing or not unique, or a line is wrong.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list != "" {
				if from != "" || a.recorded != "" {
					return fail(exitUsage, "--hosts cannot be combined with --from or --report")
				}
				set, err := a.loadUnits(), error(nil)
				if unitDir != "" {
					set, err = unitsIn(unitDir)
				}
				if err != nil {
					return err
				}
				return a.planHosts(list, set)
			}
			var sys *system
			var err error
			from = cmp.Or(from, a.recorded)
			if from != "" {
				sys, _, err = readCapture(from, unitDir)
			} else {
				sys, err = a.observe(cmd.Context())
				if err == nil && unitDir != "" {
					var set *units.Set
					if set, err = unitsIn(unitDir); err == nil {
						sys = newSystem(sys.snap, set, sys.record)
						sys.live = true
					}
				}
			}
			if err != nil {
				return err
			}
			return a.printPlan(cmd.Context(), sys)
		},
	}
	c.Flags().StringVar(&from, "from", "", "plan for the system recorded in `FILE`")
	c.Flags().StringVar(&list, "hosts", "", "show the addresses that each host of the list in `FILE` gets (-: standard input)")
	c.Flags().StringVar(&unitDir, "units", "", "read the unit files of `DIR` instead of the system's")
	_ = c.MarkFlagDirname("units")
	return c
}

// withWaits adds the links with a unit that the plan does not name and that are not
// configured: what they wait for ends by itself.
func withWaits(r plan.Result) link.Plan {
	p := r.Plan
	p.Blocked = append([]link.Blocked{}, p.Blocked...)
	named := map[string]bool{}
	for _, s := range p.Steps {
		named[s.Op.Target().Link] = true
	}
	for _, b := range p.Blocked {
		named[b.On.Link] = true
	}
	for _, l := range r.Links {
		why := l.Reason()
		if !named[l.Name] && l.Unit != "" && l.State != link.StateConfigured && l.State != link.StateUnmanaged && why.Text != "" {
			p.Blocked = append(p.Blocked, link.Blocked{On: link.Target{Link: l.Name, Ifindex: l.Ifindex}, Unit: l.Unit, Wait: true, Reason: why})
		}
	}
	return p
}

func (a *app) printPlan(ctx context.Context, sys *system) error {
	managers, notAsked := a.managerSteps(ctx, sys)
	p, notices := withWaits(sys.result), sys.notices()
	if a.json {
		steps := []answer.Step{}
		for _, s := range p.Steps {
			steps = append(steps, answer.Step{Command: s.Op.String(), Link: s.Op.Target().String(), Unit: s.Unit, Effect: s.Effect})
		}
		if notices == nil {
			notices = []link.Notice{}
		}
		return a.emit(answer.Plan{Schema: answer.Schema, Steps: steps, Blocked: p.Blocked, Notices: notices,
			Managers: append([]answer.ManagerStep{}, managers...), ManagersNotAsked: notAsked})
	}
	for _, n := range notices {
		a.script(soso, "# "+n.Text)
		if n.Next != "" {
			a.script(soso, "#   next: "+n.Next)
		}
	}
	if notAsked != "" {
		a.script(soso, "# subnet managers: not queried ("+strings.Join(strings.Fields(notAsked), " ")+")")
	}
	for _, m := range managers {
		line, style := smctl.Step{Command: m.Command, Note: m.Note}.String(), ""
		if m.Command == "" {
			style = soso
		}
		a.script(style, line)
	}
	for line := range strings.Lines(p.String()) {
		style := ""
		if strings.HasPrefix(line, "#") {
			style = soso
		}
		a.script(style, line)
	}
	switch {
	case !p.Empty(), len(sys.result.Plan.Blocked) > 0, len(managers) > 0:
	case len(p.Blocked) > 0:
		fmt.Fprintln(a.err, "Nothing to do until then.")
	case slices.ContainsFunc(sys.result.Links, func(s link.Status) bool { return s.Unit != "" }):
		fmt.Fprintln(a.err, "Nothing to do: every link with a unit is configured.")
	case len(sys.set.Units) > 0:
		fmt.Fprintln(a.err, "Nothing to do: no unit applies to a link of this host.")
	}
	return nil
}

// printNotices prints what is reported of units and the host as a whole.
func (a *app) printNotices(prefix string, notices []link.Notice) {
	for _, n := range notices {
		a.say("", 2, a.paint(soso, prefix+n.Text))
		if n.Next != "" {
			a.step(a.paint(soso, "  next: "), 8, n.Next)
		}
	}
}

// modules returns which of the modules that diagnose checks are loaded.
func modules() map[string]bool {
	out := map[string]bool{}
	for _, m := range []string{"ib_core", "ib_umad"} {
		_, err := os.Stat(filepath.Join("/sys/module", m))
		out[m] = err == nil
	}
	// Built into the kernel they have no parameters and may have no
	// directory; what they make shows that they are there.
	if _, err := os.Stat("/sys/class/infiniband"); err == nil {
		out["ib_core"] = true
	}
	if _, err := os.Stat("/sys/class/infiniband_mad"); err == nil {
		out["ib_umad"] = true
	}
	return out
}

// missing are the modules known not to be loaded.
func missing(m map[string]bool) []string {
	var out []string
	for _, n := range []string{"ib_core", "ib_umad"} {
		if loaded, known := m[n]; known && !loaded {
			out = append(out, n)
		}
	}
	return out
}
