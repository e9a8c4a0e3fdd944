package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ibnetworkd/smctl/files"
	"ibnetworkd/units"
)

const newUnit = `# See man 5 ibnetwork. ibnetctl edit checks this file and shows what it would
# change before it is installed; an installed file is applied at once.

[Match]
Name=%s

[IPoIB]
Mode=auto

[Link]
MTUBytes=max

[Network]
#Address=192.168.151.1/24

[SubnetManager]
Manage=auto
`

func (a *app) editCmd() *cobra.Command {
	var dropIn string
	var full bool
	c := &cobra.Command{
		Use: "edit NAME", Short: "edit a unit file, check it, apply it", Args: cobra.ExactArgs(1),
		Long: `Opens the unit in $VISUAL or $EDITOR. A new unit starts from a template; one that
a package installed is copied to /etc first. The result is checked, and what it
would change is shown. On a terminal it is installed after a confirmation; elsewhere
it is installed at once unless there are problems. A running daemon is reloaded.`,
		ValidArgsFunction: one(a.completeUnits),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := unitName(args[0])
			if err != nil {
				return err
			}
			target := a.path(filepath.Join(units.Dirs[0], name))
			if full && dropIn != "" {
				return fail(exitUsage, "--full and --drop-in cannot be combined")
			}
			begin := ""
			set := a.loadUnits()
			if s := masked(set, name); s != "" {
				return fail(exitNoSuch, "%s is %s; first run: %s", name, s, a.unmaskHint(name))
			}
			u := set.Unit(name)
			if cmd.Flags().Changed("drop-in") {
				if dropIn == "" || strings.HasPrefix(dropIn, ".") || strings.Contains(dropIn, "/") {
					return fail(exitUsage, "--drop-in=%s: not a file name without a directory", dropIn)
				}
				if !strings.HasSuffix(dropIn, ".conf") {
					dropIn += ".conf"
				}
				if u == nil {
					return fail(exitNoSuch, "%s: no such unit for a drop-in to extend", name)
				}
				target = filepath.Join(target+".d", dropIn)
				begin = "# Read after " + u.Path + ". An empty assignment resets a list.\n"
			} else if u != nil && u.Path != target {
				begin = u.Files[0].Text
			} else if u == nil {
				link := strings.TrimSuffix(name, units.Suffix)
				if i := strings.IndexByte(link, '-'); i > 0 && strings.Trim(link[:i], "0123456789") == "" {
					link = link[i+1:]
				}
				begin = fmt.Sprintf(newUnit, link)
			}
			if text, err := readUnit(cmd.Context(), target); err == nil {
				begin = string(text)
			}
			return a.editFile(cmd.Context(), target, begin, name, dropIn != "")
		},
	}
	c.Flags().StringVar(&dropIn, "drop-in", "", "edit the drop-in `NAME`.conf of the unit instead")
	c.Flags().BoolVar(&full, "full", false, "edit the whole unit (the default)")
	return c
}

// editFile lets the user edit begin, checks the result and puts it in place.
func (a *app) editFile(ctx context.Context, target, begin, unit string, dropIn bool) error {
	if err := mayWrite(target); err != nil {
		return err
	}
	editor, err := findEditor()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ibnetctl-")
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			os.RemoveAll(dir)
		}
	}()
	tmp := filepath.Join(dir, unit)
	if err := os.WriteFile(tmp, []byte(begin), 0o644); err != nil {
		return err
	}
	unsaved, err := os.Stat(tmp)
	if err != nil {
		return err
	}
	// Ctrl-C at the terminal is for the editor: it must neither be killed by it
	// nor keep what it wrote from being applied.
	ctx = context.WithoutCancel(ctx)
	for {
		c := exec.Command("/bin/sh", "-c", editor+` "$1"`, "sh", tmp)
		c.Stdin, c.Stdout, c.Stderr = a.in, a.tty[0], a.tty[1]
		if err := c.Run(); err != nil {
			return fmt.Errorf("the editor (%s) failed, nothing changed: %w", editor, err)
		}
		text, err := os.ReadFile(tmp)
		if err != nil {
			return err
		}
		if old, err := readUnit(ctx, target); err == nil && string(old) == string(text) {
			fmt.Fprintln(a.err, "not changed")
			return nil
		}
		if st, err := os.Stat(tmp); err == nil && string(text) == begin && st.ModTime().Equal(unsaved.ModTime()) {
			fmt.Fprintln(a.err, "not saved, nothing changed")
			return nil
		}
		problems := a.editProblems(target, unit, text, dropIn)
		for _, p := range problems {
			fmt.Fprintln(a.err, p)
		}
		if len(problems) > 0 {
			fmt.Fprint(a.err, "Edit again (e), install it with the problems (w), or quit (q)? ")
			var answer string
			if _, err := fmt.Fscanln(a.in, &answer); err != nil {
				answer = "q"
			}
			switch answer {
			case "w":
			case "q":
				fmt.Fprintln(a.err, "nothing changed")
				return &exitError{code: exitFailure}
			default:
				continue
			}
		}
		a.preview(ctx, map[string][]byte{target: text})
		if a.root == "" && a.interactive() {
			fmt.Fprintf(a.err, "Install %s (Enter or y), edit again (e), or quit (q)? ", target)
			var answer string
			switch _, err := fmt.Fscanln(a.in, &answer); {
			case answer == "e":
				continue
			case answer != "" && answer != "y" && answer != "yes", errors.Is(err, io.EOF):
				fmt.Fprintln(a.err, "nothing changed")
				return &exitError{code: exitFailure}
			}
		}
		if err := putFile(target, text); err != nil {
			keep = true
			return fmt.Errorf("%w; your edit is in %s", err, tmp)
		}
		fmt.Fprintln(a.err, "wrote", target)
		return a.reloadIfRunning(ctx)
	}
}

// findEditor is the editor that the user asks for, or one that is installed.
func findEditor() (string, error) {
	if e := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR")); e != "" {
		return e, nil
	}
	for _, e := range []string{"sensible-editor", "nano", "vi"} {
		if p, err := exec.LookPath(e); err == nil {
			return p, nil
		}
	}
	return "", errors.New("no editor found: set $EDITOR")
}

// editProblems are those of the text of a unit file or drop-in, and of the files that
// the unit would name with it.
func (a *app) editProblems(target, unit string, text []byte, dropIn bool) []units.Problem {
	name := unit
	if dropIn {
		name = filepath.Base(target)
	}
	problems := verifyText(name, text)
	// A file that could not be checked here is no reason to ask.
	for _, p := range files.New(a.root).Problems(a.withFiles(map[string][]byte{target: text}).Unit(unit)) {
		if p.Kept != "" {
			problems = append(problems, p)
		}
	}
	return problems
}

// mayWrite returns an error if putFile is not permitted to write a file, for a command that has the
// user write its text first.
func mayWrite(target string) error {
	dir, err := target, error(fs.ErrNotExist)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir) // a directory that does not exist is created
		err = unix.Faccessat(unix.AT_FDCWD, dir+"/.", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be written: %w; run this as root", target, err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s cannot be written: %w", target, err)
	}
	return nil
}

// putFile puts a unit or drop-in in place, at once and as a whole.
func putFile(target string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return ofFile(target, renameio.WriteFile(target, text, 0o644, renameio.WithStaticPermissions(0o644)))
}
