package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/smallfile"
	"ibnetworkd/units"
)

// tried is what a rollback needs: the files as they were.
type tried struct {
	Files   []triedFile   `json:"files"`
	Timeout time.Duration `json:"timeout"`
}

// triedFile is a file before the trial: nothing, a link, or a text.
type triedFile struct {
	Path   string      `json:"path"`
	Before []byte      `json:"before"`
	Mode   fs.FileMode `json:"mode"`
	Link   string      `json:"link,omitempty"`
	Had    bool        `json:"had"`
}

// former reads what is at a path now.
func former(path string) (triedFile, error) {
	f := triedFile{Path: path}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, err
	}
	f.Had, f.Mode = true, st.Mode().Perm()
	if st.Mode()&fs.ModeSymlink != 0 {
		f.Link, err = os.Readlink(path)
		return f, err
	}
	f.Before, err = smallfile.ReadRegular(path, units.MaxFile)
	return f, err
}

// restore puts it back.
func (f *triedFile) restore() error {
	switch {
	case f.Link != "":
		return renameio.Symlink(f.Link, f.Path)
	case f.Had:
		return renameio.WriteFile(f.Path, f.Before, f.Mode, renameio.WithStaticPermissions(f.Mode))
	}
	if err := os.Remove(f.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *app) tryCmd() *cobra.Command {
	var timeout *time.Duration
	var rollback string
	c := &cobra.Command{
		Use: "try FILE...", Short: "apply unit files, and revert them unless confirmed in time",
		Long: `Shows what the unit FILEs would change, copies them into /etc/systemd/network,
reloads, and asks for a confirmation. If none is given in time, the previous files
are restored and applied: if a mistake cuts you off the machine, wait. A separate
process restores them, even if ibnetctl is killed or the terminal is closed.`,
		ValidArgsFunction: cobra.FixedCompletions([]string{"ibnetwork"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rollback != "" {
				return a.tryGuard(cmd.Context(), rollback)
			}
			if len(args) == 0 {
				return fail(exitUsage, "no unit file given; for example: ibnetctl try ./10-ib0%s", units.Suffix)
			}
			return a.try(cmd.Context(), args, *timeout)
		},
	}
	timeout = timeoutFlag(c, 2*time.Minute, "revert after `TIME`")
	c.Flags().StringVar(&rollback, "guard", "", "wait for the end of a trial (used by try itself)")
	_ = c.Flags().MarkHidden("guard")
	return c
}

// triedJSON is the list of former files in a trial's directory. The trial is
// under way as long as it is there.
const triedJSON = "tried.json"

func (a *app) try(ctx context.Context, files []string, timeout time.Duration) error {
	if timeout < time.Second {
		return fail(exitUsage, "--timeout=%v: too short to answer the question", timeout)
	}
	if a.root != "" || a.noBus {
		return fail(exitUsage, "try works on the running system only; it cannot be combined with --root or --no-bus")
	}
	t, texts, err := a.readTrial(ctx, files)
	if err != nil {
		return err
	}
	t.Timeout = timeout
	c, err := connect(ctx)
	if err != nil {
		return needed(err)
	}
	defer c.close()
	a.preview(ctx, texts)
	dir, err := a.startGuard(t)
	if err != nil {
		return fmt.Errorf("nothing changed: %w", err)
	}
	until := time.Now().Add(timeout)

	back := func() error {
		done, err := settle(dir, false)
		if err != nil {
			return fmt.Errorf("%w; will retry at %s", err, until.Format("15:04:05"))
		}
		if done {
			if err := c.call(context.WithoutCancel(ctx), "Reload", nil); err != nil {
				return fmt.Errorf("the previous files are restored, but the reload failed: %w", err)
			}
		}
		fmt.Fprintln(a.err, "taken back")
		return &exitError{code: exitFailure}
	}
	for target, text := range texts {
		if err := putFile(target, text); err != nil {
			fmt.Fprintln(a.err, err)
			return back()
		}
	}
	if err := c.call(ctx, "Reload", nil); err != nil {
		fmt.Fprintf(a.err, "the reload failed: %v\n", err)
	}
	fmt.Fprintf(a.err, "Applied. Type yes and Enter to keep it; it is reverted at %s (in %v): ", until.Format("15:04:05"), timeout)
	answer := make(chan string, 1)
	go func() {
		var s string
		_, _ = fmt.Fscanln(a.in, &s)
		answer <- s
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case s := <-answer:
		if s != "yes" && s != "y" {
			return back()
		}
		kept, err := settle(dir, true)
		if err != nil {
			return fmt.Errorf("cannot keep it, it will be reverted: %w", err)
		}
		if !kept {
			return fail(exitFailure, "too late: it has been reverted")
		}
		fmt.Fprintln(a.err, "kept")
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	fmt.Fprintln(a.err)
	return back()
}

// readTrial reads the files to try, by the path that they get, and notes what is there.
func (a *app) readTrial(ctx context.Context, files []string) (t tried, texts map[string][]byte, err error) {
	texts = map[string][]byte{}
	bad := false
	for _, f := range files {
		if !strings.HasSuffix(f, units.Suffix) {
			return t, nil, fail(exitUsage, "%s is not a unit file: its name must end in %s", f, units.Suffix)
		}
		name, err := unitName(filepath.Base(f))
		if err != nil {
			return t, nil, err
		}
		text, err := readUnit(ctx, f)
		if err != nil {
			return t, nil, opening(err)
		}
		_, problems := units.VerifyFile(f, text)
		for _, p := range problems {
			fmt.Fprintln(a.err, p)
			bad = bad || p.Severity == units.Error
		}
		target := filepath.Join(units.Dirs[0], name)
		if _, twice := texts[target]; twice {
			return t, nil, fail(exitUsage, "two of the files are named %s", name)
		}
		before, err := former(target)
		if err != nil {
			return t, nil, err
		}
		t.Files = append(t.Files, before)
		texts[target] = text
	}
	if bad {
		return t, nil, fail(exitFailure, "nothing changed: a file cannot be used")
	}
	return t, texts, nil
}

// startGuard writes down what a rollback needs and starts the process that does
// it, whatever happens to us and our terminal.
func (a *app) startGuard(t tried) (dir string, err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(stateDir, "try-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	b, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tmp, triedJSON), b, 0o600); err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	guard := exec.Command(self, "try", "--guard", tmp)
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	guard.Dir = "/"
	if err := guard.Start(); err != nil {
		return "", fmt.Errorf("start the guard: %w", err)
	}
	go func() { _ = guard.Wait() }()
	return tmp, nil
}

// tryGuard waits until the trial's time is over, or until the host goes down,
// and takes it back unless that was settled already.
func (a *app) tryGuard(ctx context.Context, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, triedJSON))
	if err != nil {
		return err
	}
	var t tried
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	wait := t.Timeout + time.Second
	for range guardTries {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		done, err := settle(dir, false)
		if err == nil {
			if done {
				return a.reloadIfRunning(context.WithoutCancel(ctx))
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		wait = guardRetry
	}
	return errors.New("cannot restore the previous files")
}

// A full disk may have room again: the guard tries for an hour.
const (
	guardRetry = 10 * time.Second
	guardTries = 360
)

// settle ends a trial: it keeps the new files, or puts the former ones back. It
// reports false if the trial was settled already. Who dies half way leaves the
// trial to the next; no two act at once.
func settle(dir string, keep bool) (done bool, err error) {
	list := filepath.Join(dir, triedJSON)
	f, err := os.Open(list)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return false, fmt.Errorf("lock %s: %w", list, err)
	}
	if _, err := os.Stat(list); errors.Is(err, fs.ErrNotExist) {
		return false, nil // settled while we waited
	}
	if !keep {
		var t tried
		if err := json.NewDecoder(f).Decode(&t); err != nil {
			return false, fmt.Errorf("%s: %w", list, err)
		}
		var errs []error
		for i := range t.Files {
			errs = append(errs, t.Files[i].restore())
		}
		if err := errors.Join(errs...); err != nil {
			return false, err
		}
	}
	if err := os.Remove(list); err != nil {
		return false, err
	}
	_ = os.Remove(dir)
	return true, nil
}
