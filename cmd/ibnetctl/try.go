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
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"ibnetworkd/units"
)

// tried is what a rollback needs: the files as they were.
type tried struct {
	Files []triedFile `json:"files"`
	Until time.Time   `json:"until"`
}

type triedFile struct {
	Path   string `json:"path"`
	Before []byte `json:"before"`
	Had    bool   `json:"had"`
}

func (a *app) tryCmd() *cobra.Command {
	var timeout time.Duration
	var rollback string
	c := &cobra.Command{
		Use: "try FILE...", Short: "apply unit files, and take them back unless confirmed in time",
		Long: `Copies the unit FILEs into /etc/systemd/network, reloads, and asks for a
confirmation. Without one in time the former files come back and are applied:
after a mistake that cuts you off the machine, wait. The way back is kept by a
process of its own, so it also works when this one is killed or the terminal is
gone.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if rollback != "" {
				return a.tryGuard(cmd.Context(), rollback)
			}
			if len(args) == 0 {
				return fail(exitUsage, "name the unit files to try, for example ./10-ib0%s", units.Suffix)
			}
			return a.try(cmd.Context(), args, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "take it back after `TIME`")
	c.Flags().StringVar(&rollback, "guard", "", "wait for the end of a trial (used by try itself)")
	_ = c.Flags().MarkHidden("guard")
	return c
}

const (
	triedJSON = "tried.json"
	confirmed = "confirmed"
)

func (a *app) try(ctx context.Context, files []string, timeout time.Duration) error {
	if timeout < time.Second {
		return fail(exitUsage, "--timeout=%v is too short to read the question", timeout)
	}
	var t tried
	texts := map[string][]byte{}
	bad := false
	for _, f := range files {
		name, err := unitName(filepath.Base(f))
		if err != nil {
			return err
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return fail(exitNoSuch, "%w", err)
		}
		_, problems := units.VerifyFile(f, text)
		for _, p := range problems {
			fmt.Fprintln(a.err, p)
			bad = bad || p.Severity == units.Error
		}
		target := a.path(filepath.Join(units.Dirs[0], name))
		before, err := os.ReadFile(target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		t.Files = append(t.Files, triedFile{target, before, err == nil})
		texts[target] = text
	}
	if bad {
		return fail(exitFailure, "nothing was changed: a file cannot be used")
	}
	c, err := connect(ctx)
	if err != nil {
		return &exitError{exitNotRunning, fmt.Errorf("%w: without it nothing can be tried", err)}
	}
	defer c.close()

	base := a.path(stateDir)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(base, "try-")
	if err != nil {
		return err
	}
	t.Until = time.Now().Add(timeout)
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, triedJSON), b, 0o600); err != nil {
		return err
	}
	// The guard must live on whatever happens to us and our terminal.
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"try", "--guard", dir}
	if a.root != "" {
		args = append(args, "--root", a.root)
	}
	guard := exec.Command(self, args...)
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	guard.Env = os.Environ()
	guard.Dir = "/"
	if err := guard.Start(); err != nil {
		os.RemoveAll(dir)
		return fmt.Errorf("start the guard, nothing was changed: %w", err)
	}
	go func() { _ = guard.Wait() }()

	for target, text := range texts {
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := renameio.WriteFile(target, text, 0o644, renameio.WithStaticPermissions(0o644)); err != nil {
			return fmt.Errorf("%w; the former files come back at %s", err, t.Until.Format("15:04:05"))
		}
	}
	if err := c.call(ctx, "Reload", nil); err != nil {
		fmt.Fprintf(a.err, "the reload failed: %v\n", err)
	}
	fmt.Fprintf(a.err, "Applied. Is everything all right? Type yes and Enter to keep it; it is taken back at %s (in %v): ", t.Until.Format("15:04:05"), timeout)
	answer := make(chan string, 1)
	go func() {
		var s string
		_, _ = fmt.Fscanln(a.in, &s)
		answer <- s
	}()
	timer := time.NewTimer(time.Until(t.Until))
	defer timer.Stop()
	select {
	case s := <-answer:
		if s == "yes" || s == "y" {
			if err := os.WriteFile(filepath.Join(dir, confirmed), nil, 0o600); err != nil {
				return fmt.Errorf("the confirmation cannot be written, it will be taken back: %w", err)
			}
			fmt.Fprintln(a.err, "kept")
			return nil
		}
	case <-timer.C:
		fmt.Fprintln(a.err)
	case <-ctx.Done():
	}
	if err := rollBack(dir); err != nil {
		return err
	}
	fmt.Fprintln(a.err, "taken back")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := c.call(ctx, "Reload", nil); err != nil {
		return err
	}
	return &exitError{code: exitFailure}
}

// tryGuard waits until the trial's time is over, and takes it back unless it
// was confirmed or taken back already.
func (a *app) tryGuard(ctx context.Context, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, triedJSON))
	if err != nil {
		return err
	}
	var t tried
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	timer := time.NewTimer(time.Until(t.Until) + time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := os.Stat(filepath.Join(dir, confirmed)); err == nil {
		return os.RemoveAll(dir)
	}
	if err := rollBack(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was taken back
		}
		return err
	}
	return a.reloadIfRunning(ctx)
}

// rollBack puts the former files back. The first to rename the list does it.
func rollBack(dir string) error {
	list := filepath.Join(dir, triedJSON)
	mine := list + ".taken"
	if err := os.Rename(list, mine); err != nil {
		return err
	}
	b, err := os.ReadFile(mine)
	if err != nil {
		return err
	}
	var t tried
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	var errs []error
	for _, f := range t.Files {
		if !f.Had {
			if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, renameio.WriteFile(f.Path, f.Before, 0o644, renameio.WithStaticPermissions(0o644)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
