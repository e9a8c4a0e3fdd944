package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"ibnetworkd/units"
)

// disabledSuffix is behind the name of a unit in /etc that is switched off.
const disabledSuffix = ".disabled"

func (a *app) enableCmd(enable bool) *cobra.Command {
	c := &cobra.Command{
		Use: "disable NAME...", Short: "switch a unit off without deleting it",
		Long: `Switches units off until ibnetctl enable: they are no longer read, and the next
unit that matches applies to their links. NAME is the name of a unit file, or of a
link for the unit that applies to it.

A unit file in /etc/systemd/network is renamed to NAME.ibnetwork.disabled. In each
case a link to /dev/null replaces it, so that a unit of that name in /usr/lib does
not apply instead and a package does not restore it. Drop-ins are not changed.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeUnits,
	}
	do := a.disable
	if enable {
		c.Use, c.Short = "enable NAME...", "switch a unit on again"
		c.Long = "Reverts ibnetctl disable: the link to /dev/null is removed, and the unit file is renamed back from NAME.ibnetwork.disabled."
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
		fmt.Fprintln(a.err, file, "is already switched off")
		return false, nil
	case err == nil && st.IsDir():
		return false, fail(exitFailure, "%s: is a directory", p)
	case err == nil:
		// A link first: the name is never free for a unit of lower priority.
		if err := os.Link(p, keep); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return false, fail(exitFailure, "%s: already exists; move or delete it", keep)
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
	applied := ""
	if links := a.linksOf(ctx, file); len(links) > 0 {
		applied = ", which applied to " + strings.Join(links, ", ")
	}
	if err := renameio.Symlink("/dev/null", p); err != nil {
		return false, err
	}
	fmt.Fprintf(a.err, "disabled %s%s; to switch it on again: ibnetctl enable %s\n", file, applied, file)
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
			return false, fail(exitFailure, "%s and %s: both exist; delete one of them", p, filepath.Base(keep))
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
