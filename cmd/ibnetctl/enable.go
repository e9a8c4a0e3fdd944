package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"ibnetworkd/units"
)

// disabledSuffix is behind the name of a unit in /etc that is switched off.
const disabledSuffix = ".disabled"

func (a *app) enableCmd(enable bool) *cobra.Command {
	c := &cobra.Command{
		Use: "disable NAME...", Short: "switch a unit off, and keep it",
		Long: `Switches units off until ibnetctl enable: they are not read any more, and the
links that they applied to are left to the next unit that matches. NAME is the
name of a unit file, or of a link: then the unit that applies to the link.

A unit file in /etc/systemd/network is kept beside itself as
NAME.ibnetwork.disabled. In each case a link to /dev/null takes its place, so
that neither a unit of that name in /usr/lib applies instead nor a package
brings it back. Drop-ins stay where they are.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeUnits,
	}
	do := a.disable
	if enable {
		c.Use, c.Short = "enable NAME...", "switch a unit on again"
		c.Long = "Undoes ibnetctl disable: the link to /dev/null is removed, and the unit file that was kept as NAME.ibnetwork.disabled is put back."
		c.ValidArgsFunction = a.completeMasked
		do = a.enable
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		changed := false
		var errs []error
		for _, n := range args {
			did, err := do(cmd.Context(), n)
			changed = changed || did
			if err != nil {
				errs = append(errs, err)
			}
		}
		if changed {
			if err := a.reloadIfRunning(cmd.Context()); err != nil {
				errs = append(errs, err)
			}
		}
		return joined(errs)
	}
	return c
}

// isMask reports whether path is a link to /dev/null.
func isMask(path string) bool {
	to, err := os.Readlink(path)
	return err == nil && to == "/dev/null"
}

// unitToSwitch is the file name of the unit that is to be masked or disabled:
// of that name, or the one that applies to the link of that name.
func (a *app) unitToSwitch(ctx context.Context, name string) (string, error) {
	file, err := unitName(name)
	if err != nil {
		return "", err
	}
	set := a.loadUnits()
	for _, s := range set.Skipped {
		if s.Name == file {
			return file, nil
		}
	}
	u, err := a.findUnit(ctx, set, name)
	if err == nil {
		return u.Name, nil
	}
	// A file that cannot be read as a unit is one all the same.
	for _, d := range units.Dirs {
		if _, lerr := os.Lstat(a.path(filepath.Join(d, file))); lerr == nil {
			return file, nil
		}
	}
	return "", err
}

func (a *app) disable(ctx context.Context, name string) (bool, error) {
	file, err := a.unitToSwitch(ctx, name)
	if err != nil {
		return false, err
	}
	p := a.path(filepath.Join(units.Dirs[0], file))
	keep := p + disabledSuffix
	switch st, err := os.Lstat(p); {
	case isMask(p):
		fmt.Fprintln(a.err, file, "is switched off already")
		return false, nil
	case err == nil && st.IsDir():
		return false, fail(exitFailure, "%s: this is a directory", p)
	case err == nil:
		// A link first: the name is never free for a unit of lower priority.
		if err := os.Link(p, keep); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return false, fail(exitFailure, "%s: there is one already; move or delete it", keep)
			}
			return false, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	default:
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return false, err
		}
	}
	if err := renameio.Symlink("/dev/null", p); err != nil {
		return false, err
	}
	fmt.Fprintln(a.err, "disabled", file+"; to switch it on again: ibnetctl enable", file)
	return true, nil
}

func (a *app) enable(ctx context.Context, name string) (bool, error) {
	file, err := unitName(name)
	if err != nil {
		return false, err
	}
	p := a.path(filepath.Join(units.Dirs[0], file))
	keep := p + disabledSuffix
	_, kerr := os.Lstat(keep)
	switch {
	case isMask(p) && kerr == nil:
		err = os.Rename(keep, p)
	case isMask(p):
		err = os.Remove(p)
	case kerr == nil:
		if _, err := os.Lstat(p); err == nil {
			return false, fail(exitFailure, "%s and %s: both are there; delete one of them", p, filepath.Base(keep))
		}
		// Something removed the link to /dev/null.
		err = os.Rename(keep, p)
	default:
		// Not switched off, or masked elsewhere: then findUnit says where.
		if _, err := a.findUnit(ctx, a.loadUnits(), name); err != nil {
			return false, err
		}
		fmt.Fprintln(a.err, file, "is not switched off")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fmt.Fprintln(a.err, "enabled", file)
	return true, nil
}

// unmaskHint is the command that brings a masked unit back.
func (a *app) unmaskHint(file string) string {
	if _, err := os.Lstat(a.path(filepath.Join(units.Dirs[0], file)) + disabledSuffix); err == nil {
		return "ibnetctl enable " + file
	}
	return "ibnetctl unmask " + file
}
