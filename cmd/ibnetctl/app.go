package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/internal/cli"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/internal/version"
)

// Exit codes, as ibnetctl(1) documents them.
const (
	exitOK         = 0
	exitFailure    = 1 // the operation failed, or the answer is "not all right"
	exitUsage      = cli.ExitUsage
	exitNotRunning = 3 // the command needs the daemon, and it does not run
	exitDenied     = 4
	exitNoSuch     = 5 // no such link, port or unit
	exitTimeout    = 6
	exitMistake    = 7 // diagnose: nothing is blocked, and a unit file has a mistake
	exitUnknown    = 8 // diagnose: the system could not be examined
)

// exitError is an error with an exit code. Without err the command has already
// said what there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func fail(code int, format string, a ...any) error {
	return &exitError{code, fmt.Errorf(format, a...)}
}

// joined is several errors as one, each with a line of its own. Its exit code is
// the first one's; where that is the general failure, any lack of rights comes first.
func joined(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return &exitError{exitCode(errs[0]), errors.Join(errs...)}
}

type app struct {
	in       io.Reader
	out, err io.Writer
	tty      [2]io.Writer // what out and err write to, for a program that we run
	terminal bool         // out is one
	width    int          // columns of out where it is a terminal, else 0
	errWidth int          // the same of err
	pager    *pager       // what out goes through, nil for none
	noPager  bool
	hosts    []string // where to run instead of here
	root     string   // prefix of every path that is read or written, for tests and images
	json     bool
	colour   bool
	noBus    bool
	recorded string // a report to show in place of this host
	emitted  bool   // JSON was printed
	speaks   bool   // the command is one that answers in JSON
}

func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	a := &app{in: in, out: out, err: errw, tty: [2]io.Writer{out, errw}, terminal: isTerminal(out), width: terminalWidth(out),
		errWidth: terminalWidth(errw)}
	if a.terminal {
		a.out = screen{out}
	}
	if isTerminal(errw) {
		a.err = screen{errw}
	}
	cmd := a.command()
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(a.out)
	cmd.SetErr(a.err)
	err := cmd.ExecuteContext(ctx)
	if a.pager != nil && errors.Is(err, unix.EPIPE) {
		err = nil // the reader has seen enough
	}
	a.endPage(ctx)
	// What cannot be parsed may have ended before the flag was seen.
	a.json = a.json || err != nil && slices.Contains(args, "--json")
	if a.json && !a.emitted {
		// A command that has nothing to say says how it went.
		if err == nil && a.speaks {
			_ = a.emit(answer.Done{Schema: answer.Schema, OK: true})
		} else if err != nil {
			_ = a.emit(answer.Failure{Schema: answer.Schema, Code: exitCode(err), Error: err.Error()})
		}
	}
	if err == nil {
		return exitOK
	}
	var ee *exitError
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(a.err, "ibnetctl: interrupted")
	case !errors.As(err, &ee):
		fmt.Fprintln(a.err, "ibnetctl:", err)
	case ee.err != nil:
		for line := range strings.Lines(ee.err.Error()) {
			if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "next: ") {
				line = "ibnetctl: " + line
			}
			fmt.Fprintln(a.err, line)
		}
	}
	return exitCode(err)
}

// exitCode is the code of an error.
func exitCode(err error) int {
	var ee *exitError
	switch {
	case errors.As(err, &ee) && ee.code != exitFailure:
		return ee.code
	case errors.Is(err, fs.ErrPermission):
		return exitDenied
	case ee != nil:
		return ee.code
	case cli.IsUsage(err):
		return exitUsage
	}
	return exitFailure
}

// recordedCommands are those that --report goes with.
var recordedCommands = []string{"ibnetctl status", "ibnetctl list", "ibnetctl ports", "ibnetctl diagnose", "ibnetctl plan",
	"ibnetctl sm status"}

// command builds the tree of commands.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "ibnetctl",
		Short: "show and control InfiniBand and RoCE links",
		Long: `ibnetctl shows the state of the InfiniBand and RoCE links of this host and why a
link differs from its .ibnetwork file, and controls the daemon and the subnet
manager.

Start here:
  ibnetctl status            all links and ports at a glance
  ibnetctl diagnose          check from the cable to the IP address: the first
                             problem, and the command to run next
  ibnetctl edit 10-ib0       write a unit file: it is checked, and what it would
                             change is shown, before it applies
  ibnetctl try FILE          apply a unit file, and revert it unless confirmed
  ibnetctl verify            check the unit files
  ibnetctl plan              show what would be changed, without changing it

A unit file that is saved is applied at once; WatchUnitFiles=no in
ibnetworkd.conf makes edits wait for ibnetctl reload.
A LINK is a network interface such as ib0, a PORT an RDMA port such as mlx5_0/1,
also by the name of its link.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Version:           version.String(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			if len(a.hosts) > 0 && !strings.HasPrefix(c.Name(), "__") {
				if err := a.remote(c.Context(), a.hosts, remoteArgs(c, args)); err != nil {
					return err
				}
				return &exitError{code: exitOK}
			}
			if a.root != "" {
				if st, err := os.Stat(a.root); err != nil || !st.IsDir() {
					return fail(exitNoSuch, "--root=%s: no such directory", a.root)
				}
			}
			if a.recorded != "" {
				if !slices.Contains(recordedCommands, c.CommandPath()) {
					return fail(exitUsage, "%s does not work on a report: it is for %s", c.CommandPath(), strings.Join(recordedCommands, ", "))
				}
				a.noBus = true
			}
			a.speaks = !c.HasSubCommands() && c.Name() != "monitor" && c.Name() != "completion" && !strings.HasPrefix(c.Name(), "__")
			a.colour = !a.json && a.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
			if follow := c.Flags().Lookup("follow"); c.Annotations[paged] != "" && a.terminal && !a.json && !a.noPager &&
				(follow == nil || !follow.Changed) {
				a.page()
			}
			return nil
		},
	}
	root.SetVersionTemplate("ibnetctl {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version")
	f := root.PersistentFlags()
	f.BoolP("help", "h", false, "print this help")
	f.BoolVar(&a.json, "json", false, "print JSON (schema: man ibnetctl)")
	f.StringVar(&a.root, "root", "", "read and write unit files below `DIR`, such as an image")
	f.BoolVar(&a.noPager, "no-pager", false, "do not use a pager")
	f.StringSliceVarP(&a.hosts, "host", "H", nil, "run on `HOST` by ssh (HOST or USER@HOST, or a list with commas); files are those "+
		"of the host")
	f.BoolVar(&a.noBus, "no-bus", false, "do not query the daemon, read the system directly")
	f.StringVar(&a.recorded, "report", "", "show the host recorded in `FILE` (ibnetctl report) in place of this one")
	root.AddGroup(
		&cobra.Group{ID: "see", Title: "Show:"},
		&cobra.Group{ID: "units", Title: "Unit files:"},
		&cobra.Group{ID: "act", Title: "Control:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("see", a.statusCmd(), a.listCmd(), a.portsCmd(), a.diagnoseCmd(), a.monitorCmd(), a.planCmd(), a.captureCmd(), a.reportCmd(),
		a.waitOnlineCmd(), a.logsCmd(), a.metricsCmd())
	add("units", a.verifyCmd(), a.catCmd(), a.editCmd(), a.enableCmd(true), a.enableCmd(false), a.maskCmd(true), a.maskCmd(false),
		a.importCmd())
	add("act", a.reloadCmd(), a.reconfigureCmd(), a.renewCmd(), a.upDownCmd(true), a.upDownCmd(false), a.tryCmd(), a.smCmd(), a.logLevelCmd())
	root.AddCommand(a.completionCmd(root))
	wrapHelp(root)
	cli.Wrap(root)
	return root
}

// wrapHelp breaks the paragraphs of every command's long help at cli.HelpWidth. Indented
// lines stay as they are.
func wrapHelp(c *cobra.Command) {
	var out []string
	for p := range strings.SplitSeq(c.Long, "\n\n") {
		if !strings.Contains(p, "\n ") {
			p = strings.Join(wrap(strings.ReplaceAll(p, "\n", " "), cli.HelpWidth), "\n")
		}
		out = append(out, p)
	}
	c.Long = strings.Join(out, "\n\n")
	for _, sub := range c.Commands() {
		wrapHelp(sub)
	}
}

// opening gives an error of opening a file its exit code.
func opening(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{exitNoSuch, err}
	}
	return err
}

// path places an absolute path below the root.
func (a *app) path(p string) string {
	if a.root == "" {
		return p
	}
	// Of a link in the directories above p, the target is below the root too.
	if root, err := filepath.Abs(a.root); err == nil {
		if dir, _, err := unitfs.Resolve(root, filepath.Dir(p)); err == nil {
			p = filepath.Join(dir, filepath.Base(p))
		}
	}
	return filepath.Join(a.root, p)
}

// within is the absolute path of a file as the system below the root knows it.
func (a *app) within(p string) (string, error) {
	p, err := filepath.Abs(p)
	if err != nil || a.root == "" {
		return p, err
	}
	root, err := filepath.Abs(a.root)
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/"); ok {
		p = "/" + rest
	}
	return p, nil
}

// emit prints v as JSON.
func (a *app) emit(v any) error {
	a.emitted = true
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// screen is a terminal that takes no commands but our own colours: names of
// nodes come from the fabric, where others choose them.
type screen struct{ w io.Writer }

// controls are control characters, and the sequences of paint.
var controls = regexp.MustCompile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f]")

// printable is s with no control characters but our own colours.
func printable(s string) string {
	return controls.ReplaceAllStringFunc(strings.ToValidUTF8(s, "?"), func(m string) string {
		if len(m) > 2 {
			return m
		}
		return "?"
	})
}

func (s screen) Write(b []byte) (int, error) {
	if _, err := io.WriteString(s.w, printable(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func timeoutFlag(c *cobra.Command, def time.Duration, usage string) *time.Duration {
	d := new(time.Duration)
	cli.TimeVar(c.Flags(), d, "timeout", def, usage)
	return d
}

// Colours, by meaning.
const (
	good  = "32"
	soso  = "33"
	bad   = "1;31"
	bold  = "1"
	faint = "2"
)

func (a *app) paint(style, s string) string {
	if !a.colour || style == "" || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}
