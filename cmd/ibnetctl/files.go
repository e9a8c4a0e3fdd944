package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/link"
	"ibnetworkd/smctl/files"
	"ibnetworkd/units"
)

// roots are the unit directories below --root, which links do not leave.
func (a *app) roots() []units.Root {
	var out []units.Root
	for _, d := range units.Dirs {
		out = append(out, units.Root{Path: a.path(d), FS: unitfs.New(a.path("/"), d)})
	}
	return out
}

// readUnit reads a unit file that was named by the user. A pipe is read only where
// it was handed over as one (/dev/stdin, or <(command) as the shell makes it).
func readUnit(ctx context.Context, name string) ([]byte, error) {
	if !strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/proc/") {
		b, err := smallfile.ReadRegular(name, units.MaxFile)
		if err != nil && errors.Is(err, smallfile.ErrNotRegular) {
			return nil, fmt.Errorf("%s is not a regular file", name)
		}
		return b, err
	}
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		f, err := os.Open(name)
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, units.MaxFile+1))
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *app) loadUnits() *units.Set { return units.Load(a.roots()).WithTables(nil, a.addressTable) }

func (a *app) addressTable(path string) ([]byte, error) {
	return unitfs.ReadFile(a.path("/"), path, units.MaxTable)
}

// completeUnits offers the names of unit files.
func (a *app) completeUnits(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, u := range a.loadUnits().Units {
		out = append(out, strings.TrimSuffix(u.Name, units.Suffix)+"\t"+u.Path)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeMasked offers the names of masked units.
func (a *app) completeMasked(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, s := range a.loadUnits().Skipped {
		if s.Masked && !s.DropIn {
			out = append(out, strings.TrimSuffix(s.Name, units.Suffix)+"\t"+s.Why)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// verifyText checks one file by itself. A drop-in is checked behind a unit that
// matches everything: its own need not say what it matches.
func verifyText(name string, text []byte) []units.Problem {
	if !strings.HasSuffix(name, ".conf") {
		_, problems := units.VerifyFile(name, text)
		return problems
	}
	m := fstest.MapFS{}
	addText(m, "x"+units.Suffix, "[Match]\nName=*\n")
	addText(m, "x"+units.Suffix+".d/x.conf", string(text))
	problems := units.Load([]units.Root{{Path: "", FS: m}}).Problems
	for i := range problems {
		problems[i].Pos.File = name
	}
	return problems
}

func (a *app) verifyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "verify [FILE...]", Short: "check the unit files",
		Annotations: map[string]string{paged: "yes"},
		Long: `Reads the unit files as the daemon does, or only the FILEs given (units or
drop-ins), and the files that [SubnetManager] and AddressTable= name, and prints each problem as
file:line:column, with the value that is used instead. Exits 1 if there is one;
drop-in directories without a unit and names that look like misspelt units
(.ibnetwrok, .ibnetwork.conf) are problems too. Without FILEs it also notes what
has no effect on this host: units that match nothing, settings for systemd-resolved
if it is not running, partitions that the subnet managers of other hosts do not
have. Notes do not change the exit status.`,
		ValidArgsFunction: cobra.FixedCompletions([]string{"ibnetwork", "conf"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(cmd *cobra.Command, args []string) error {
			var problems []units.Problem
			var notices []link.Notice
			n := 0
			if len(args) == 0 {
				set := a.loadUnits()
				problems, n = append(slices.Clone(set.Problems), files.New(a.root).Set(set)...), len(set.Units)
				if a.root == "" {
					sys, err := a.observe(cmd.Context())
					if err != nil {
						fmt.Fprintln(a.err, "not checked against the links of this host:", err)
					} else {
						notices = slices.Concat(sys.notices(), link.DNSNotices(sys.snap, sys.set), a.moduleNotices(cmd.Context()))
					}
				}
				notices = append(notices, link.PartitionNotices(set)...)
			} else {
				for _, f := range args {
					text, err := readUnit(cmd.Context(), f)
					if err != nil {
						return opening(err)
					}
					problems, n = append(problems, verifyText(f, text)...), n+1
					if u, _ := units.VerifyFile(f, text); u != nil && strings.HasSuffix(f, units.Suffix) {
						problems = append(problems, files.New(a.root).Problems(u)...)
						one := &units.Set{Units: []*units.Unit{u}}
						problems = append(problems, one.WithTables(nil, a.addressTable).Problems...)
					}
				}
			}
			if a.json {
				if problems == nil {
					problems = []units.Problem{}
				}
				if err := a.emit(answer.Verify{Schema: answer.Schema, Files: n, Problems: problems, Notices: notices}); err != nil {
					return err
				}
			} else {
				a.printProblems(problems)
				a.printNotices("note: ", notices)
				if len(problems) == 0 {
					fmt.Fprintf(a.err, "%d unit %s read, no problem found\n", n, plural(n, "file", "files"))
				}
			}
			if len(problems) > 0 {
				return &exitError{code: exitFailure}
			}
			return nil
		},
	}
}

func (a *app) printProblems(problems []units.Problem) {
	for _, p := range problems {
		style := soso
		if p.Severity == units.Error {
			style = bad
		}
		a.say("", 2, a.paint(style, p.String()))
	}
}

// moduleNotices are the modules that the daemon could not load; without it they are
// not checked.
func (a *app) moduleNotices(ctx context.Context) []link.Notice {
	if a.noBus {
		return nil
	}
	c, err := connect(ctx)
	if err != nil {
		return nil
	}
	defer c.close()
	d, err := c.describe(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(d.Notices, func(n link.Notice) bool { return n.Code != link.CodeModule })
}

// unitName completes the suffix and refuses paths.
func unitName(s string) (string, error) {
	if strings.ContainsAny(s, "/\x00") || s == "" || strings.HasPrefix(s, ".") {
		return "", fail(exitUsage, "%q is not the name of a unit file: use 10-ib0 or 10-ib0%s, without a directory", s, units.Suffix)
	}
	if !strings.HasSuffix(s, units.Suffix) {
		s += units.Suffix
	}
	return s, nil
}

func (a *app) catCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cat NAME...", Short: "print a unit with its drop-ins, in the order they apply", Args: cobra.MinimumNArgs(1),
		Annotations: map[string]string{paged: "yes"},
		Long: `Prints the file of a unit and its drop-ins, in the order in which they apply, each
under a comment with its path. NAME is the name of a unit file, or of a link for
the unit that applies to it.`,
		ValidArgsFunction: a.completeUnits,
		RunE: func(cmd *cobra.Command, args []string) error {
			set := a.loadUnits()
			form := answer.Cat{Schema: answer.Schema, Units: []answer.UnitText{}}
			for i, n := range args {
				u, err := a.findUnit(cmd.Context(), set, n)
				if err != nil {
					return err
				}
				if a.json {
					var b strings.Builder
					if err := units.Cat(&b, u); err != nil {
						return err
					}
					form.Units = append(form.Units, answer.UnitText{Name: u.Name, Text: b.String()})
					continue
				}
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				if err := units.Cat(a.out, u); err != nil {
					return err
				}
			}
			if a.json {
				return a.emit(form)
			}
			return nil
		},
	}
}

// findUnit finds a unit by its own name or by the name of a link.
func (a *app) findUnit(ctx context.Context, set *units.Set, name string) (*units.Unit, error) {
	if u := set.Unit(name); u != nil {
		return u, nil
	}
	if s := masked(set, name); s != "" {
		return nil, fail(exitNoSuch, "%s is %s", name, s)
	}
	if p := refused(set, name); p != nil {
		return nil, fail(exitFailure, "%s is not used: %s", name, p)
	}
	for _, l := range a.linksWithUnit(ctx) {
		if l.Name == name {
			if u := set.Unit(path.Base(l.Unit)); u != nil {
				return u, nil
			}
		}
	}
	return nil, fail(exitNoSuch, "%s: no such unit in %s, and no unit applies to a link of that name", name, strings.Join(units.Dirs, ", "))
}

// linksWithUnit are the links that units apply to, none where the daemon does not answer.
func (a *app) linksWithUnit(ctx context.Context) []link.Status {
	quiet := *a
	quiet.json = true
	d, err := quiet.describe(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(d.Links, func(l link.Status) bool { return l.Unit == "" })
}

// linksOf are the names of the links that a unit applies to.
func (a *app) linksOf(ctx context.Context, file string) (names []string) {
	for _, l := range a.linksWithUnit(ctx) {
		if path.Base(l.Unit) == file {
			names = append(names, l.Name)
		}
	}
	return names
}

// refused is the first error of a unit's main file, nil if it has none.
func refused(set *units.Set, name string) *units.Problem {
	for i := range set.Problems {
		p := &set.Problems[i]
		if base := path.Base(p.Pos.File); p.Severity == units.Error &&
			strings.TrimSuffix(base, units.Suffix) == strings.TrimSuffix(name, units.Suffix) {
			return p
		}
	}
	return nil
}

// masked is by what a unit is masked, empty if it is not.
func masked(set *units.Set, name string) string {
	for _, s := range set.Skipped {
		if s.Masked && !s.DropIn && strings.TrimSuffix(s.Name, units.Suffix) == strings.TrimSuffix(name, units.Suffix) {
			return s.Why
		}
	}
	return ""
}

// reloadIfRunning has a running daemon read changed files. It watches the
// directories itself; the call only makes the result certain and visible.
func (a *app) reloadIfRunning(ctx context.Context) error {
	if a.root != "" || a.noBus {
		return nil
	}
	c, err := connect(ctx)
	switch {
	case errors.Is(err, errNotRunning):
		fmt.Fprintln(a.err, "ibnetworkd is not running: the file is applied when it starts")
		return nil
	case err != nil:
		return fmt.Errorf("the file is written and not applied: %w", err)
	}
	defer c.close()
	return c.call(ctx, "Reload", nil)
}

func (a *app) maskCmd(mask bool) *cobra.Command {
	word, short := "mask", "hide a unit"
	long := "Creates a link to /dev/null in /etc/systemd/network (with --runtime in /run) that hides the unit of that name. It is " +
		"for units of packages; ibnetctl disable also switches off those in /etc. NAME is the name of a unit file, or of a link for the " +
		"unit that applies to it."
	if !mask {
		word, short, long = "unmask", "undo mask", "Removes the links to /dev/null that mask created."
	}
	var runtime bool
	complete := a.completeUnits
	if !mask {
		complete = a.completeMasked
	}
	c := &cobra.Command{
		Use: word + " NAME...", Short: short, Long: long, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := a.path(units.Dirs[0])
			if runtime {
				dir = a.path(units.Dirs[1])
			}
			for _, n := range args {
				name, err := unitName(n)
				if mask && err == nil {
					name, err = a.unitToSwitch(cmd.Context(), n)
				}
				if err != nil {
					return err
				}
				p := filepath.Join(dir, name)
				own := a.path(filepath.Join(units.Dirs[0], name))
				switch {
				case mask && isMask(p):
				case mask:
					// One in /etc is read before a mask in /run, too.
					for _, f := range []string{p, own} {
						if _, err := os.Lstat(f); err == nil && !isMask(f) {
							return fail(exitFailure, "%s is a file, which a mask would overwrite; to switch it off: ibnetctl disable %s", f, name)
						}
					}
					if err := os.MkdirAll(dir, 0o755); err != nil {
						return err
					}
					if err := renameio.Symlink("/dev/null", p); err != nil {
						return err
					}
					fmt.Fprintln(a.err, "masked", name, "by", p)
				case isMask(p):
					if h := a.unmaskHint(name); p == own && strings.HasPrefix(h, "ibnetctl enable") {
						return fail(exitFailure, "%s was switched off by ibnetctl disable; to switch it on: %s", name, h)
					}
					if err := os.Remove(p); err != nil {
						return err
					}
					fmt.Fprintln(a.err, "removed", p)
				default:
					return fail(exitNoSuch, "%s is not masked by %s", name, p)
				}
			}
			return a.reloadIfRunning(cmd.Context())
		},
	}
	c.Flags().BoolVar(&runtime, "runtime", false, "until the next boot only")
	return c
}
