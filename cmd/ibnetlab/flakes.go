package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/internal/cli"
)

// outcome is what became of one test over all runs.
type outcome struct {
	name               string
	runs, bad, skipped int
	shortest, longest  float64 // seconds, of those that passed
}

// event is a line of go test's JSON output.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of what is built
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string // of a package that failed because of it
}

// flakes counts the outcomes of top-level tests, and of packages that failed otherwise
// than by a test.
type flakes map[string]*outcome

func (f flakes) of(key, name string) *outcome {
	o := f[key]
	if o == nil {
		o = &outcome{name: name}
		f[key] = o
	}
	return o
}

// broke counts a failure that is no test's.
func (f flakes) broke(name string) {
	o := f.of(name, name)
	o.runs++
	o.bad++
}

func (f flakes) add(e event) {
	if e.Test == "" || strings.Contains(e.Test, "/") {
		return
	}
	switch e.Action {
	case "pass", "fail", "skip":
	default:
		return
	}
	o := f.of(e.Package+" "+e.Test, e.Test)
	o.runs++
	switch e.Action {
	case "fail":
		o.bad++
	case "skip":
		o.skipped++
	default:
		if o.shortest == 0 || e.Elapsed < o.shortest {
			o.shortest = e.Elapsed
		}
		o.longest = max(o.longest, e.Elapsed)
	}
}

// table prints the tests, those that failed first.
func (f flakes) table(w io.Writer) error {
	all := make([]*outcome, 0, len(f))
	for _, o := range f {
		if o.skipped < o.runs {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *outcome) int {
		if a.bad != b.bad {
			return b.bad - a.bad
		}
		return strings.Compare(a.name, b.name)
	})
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "runs\tfailed\tshortest\tlongest\t  test")
	for _, o := range all {
		fmt.Fprintf(t, "%d\t%d\t%.1f s\t%.1f s\t  %s\n", o.runs, o.bad, o.shortest, o.longest, o.name)
	}
	return t.Flush()
}

func (f flakes) failed() (n int) {
	for _, o := range f {
		n += o.bad
	}
	return n
}

func flakesCommand() *cobra.Command {
	var n int
	var pattern, logs string
	var jitter time.Duration
	c := &cobra.Command{
		Use:   "flakes [PACKAGE...]",
		Short: "run scenarios many times and count failures (default: ./lab/scenario)",
		RunE: func(cmd *cobra.Command, pkgs []string) error {
			if n < 1 {
				return fmt.Errorf("-n %d: want 1 run or more", n)
			}
			if err := checkPattern(pattern); err != nil {
				return fmt.Errorf("--run %q: %w", pattern, err)
			}
			root, err := moduleRoot()
			if err != nil {
				return err
			}
			if len(pkgs) == 0 {
				pkgs = []string{"./lab/scenario"}
			}
			if err := checkPackages(cmd.Context(), root, pkgs); err != nil {
				return err
			}
			if logs == "" {
				if logs, err = os.MkdirTemp("", "ibnetlab-flakes-"); err != nil {
					return err
				}
				defer os.Remove(logs) // stays if a log is in it
			} else if err := os.MkdirAll(logs, 0o755); err != nil {
				return err
			}
			all := flakes{}
			out := cmd.OutOrStdout()
			done := 0
			var ended error // in the middle of a run
			where := ""
			for done < n && ended == nil {
				start := time.Now()
				before := all.failed()
				r := runOutput{all: all, jitter: jitter}
				logFile := filepath.Join(logs, fmt.Sprintf("run-%03d.log", done+1))
				ended = r.once(cmd.Context(), root, pkgs, pattern, logFile)
				if r.kept {
					where = "; the logs are in " + logs
				}
				fmt.Fprintf(out, "run %d of %d: ", done+1, n)
				if ended != nil {
					fmt.Fprintf(out, "%v after ", ended)
				} else {
					done++
				}
				fmt.Fprintf(out, "%v, %d failed\n", time.Since(start).Round(time.Second), all.failed()-before)
				for _, l := range append(r.stalls, r.broken...) {
					fmt.Fprintln(out, l)
				}
				if r.unbuilt {
					break // the next run would not compile either
				}
			}
			if err := all.table(out); err != nil {
				return err
			}
			switch b := all.failed(); {
			case ended != nil:
				return fmt.Errorf("run %d of %d: %w (%d tests had failed)%s", done+1, n, ended, b, where)
			case len(all) == 0:
				return fmt.Errorf("no test matches %q", pattern)
			case b > 0:
				return fmt.Errorf("%d failures in %d runs%s", b, done, where)
			}
			fmt.Fprintf(out, "%d runs without a failure\n", done)
			return nil
		},
	}
	c.Flags().IntVarP(&n, "runs", "n", 50, "`NUMBER` of runs")
	c.Flags().StringVar(&pattern, "run", "", "`REGEXP` of the tests, as for go test")
	cli.TimeVar(c.Flags(), &jitter, "jitter", 0, "stop the guests' processes at random, each for at most `TIME`, to find tests that "+
		"depend on their order")
	c.Flags().StringVar(&logs, "logs", "", "`DIR` for the logs of runs that failed or were interrupted (default: a new one)")
	return c
}

// checkPattern reports what is wrong with a pattern of go test -run: regular expressions
// with slashes between them, but not within brackets.
func checkPattern(pattern string) error {
	depth, class, start := 0, 0, 0
	for i := 0; i <= len(pattern); i++ {
		if i == len(pattern) || pattern[i] == '/' && depth == 0 && class == 0 {
			if _, err := regexp.Compile(pattern[start:i]); err != nil {
				return err
			}
			start = i + 1
			continue
		}
		switch pattern[i] {
		case '\\':
			i++
		case '[':
			class++
		case ']':
			class = max(class-1, 0)
		case '(':
			if class == 0 {
				depth++
			}
		case ')':
			if class == 0 {
				depth--
			}
		}
	}
	return nil
}

// checkPackages makes sure that there are such packages, which need not compile.
func checkPackages(ctx context.Context, root string, pkgs []string) error {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-f", "{{with .Error}}{{$.ImportPath}}: {{.Err}}{{end}}",
		"--"}, pkgs...)...)
	list.Dir = root
	var complaint bytes.Buffer
	list.Stderr = &complaint
	text, err := list.Output()
	if bad := strings.TrimSpace(string(text)); bad != "" {
		return errors.New(bad)
	}
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// runOutput reads what go test says of one run.
type runOutput struct {
	all     flakes
	jitter  time.Duration
	stalls  []string // which guests stood still, and when
	broken  []string // what is known of failures that are no test's
	unbuilt bool     // something did not compile
	failed  bool
	kept    bool // its log

	log  *bufio.Writer
	pkgs map[string]*pkgOutput
}

// pkgOutput is what the run of one package has said so far.
type pkgOutput struct {
	running []string // top-level tests without an outcome
	failed  bool     // by a test
	tail    []string // last lines
}

// tailLines is how much of the output of a package that broke is shown: a panic begins
// some lines before the end.
const tailLines, tailLine = 30, 400

func (r *runOutput) pkg(name string) *pkgOutput {
	p := r.pkgs[name]
	if p == nil {
		if r.pkgs == nil {
			r.pkgs = map[string]*pkgOutput{}
		}
		p = &pkgOutput{}
		r.pkgs[name] = p
	}
	return p
}

// stoodStill matches what the lab says of a guest that got no processor for a while; that
// is of interest even where nothing failed.
var stoodStill = regexp.MustCompile(`^ +\w+\.go:\d+: (the guest(?: \(node .+\))? stood still for .+)`)

func (r *runOutput) event(e event) {
	_, _ = r.log.WriteString(e.Output)
	r.all.add(e)
	if m := stoodStill.FindStringSubmatch(e.Output); m != nil {
		r.stalls = append(r.stalls, "\t"+e.Test+": "+short(m[1]))
	}
	if e.Action == "build-output" {
		p := r.pkg(e.ImportPath)
		p.add(e.Output)
		return
	}
	if e.Action == "build-fail" {
		r.failed, r.unbuilt = true, true
		return
	}
	p := r.pkg(e.Package)
	if e.Output != "" {
		p.add(e.Output)
	}
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "run":
		if top {
			p.running = append(p.running, e.Test)
		}
	case "pass", "skip", "fail":
		if top {
			p.running = slices.DeleteFunc(p.running, func(t string) bool { return t == e.Test })
			p.failed = p.failed || e.Action == "fail"
		}
		if e.Action == "fail" {
			r.failed = true
			_ = r.log.Flush() // so that it can be read while the others run
			if e.Test == "" {
				r.pkgFailed(e, p)
			}
		}
	}
}

// pkgFailed is the end of a package that has failed: by a test, or not only by that.
func (r *runOutput) pkgFailed(e event, p *pkgOutput) {
	name := "package " + e.Package
	switch {
	case e.FailedBuild != "":
		r.all.broke(name)
		r.broken = append(r.broken, fmt.Sprintf("%s did not compile:\n%s", name, r.pkg(e.FailedBuild).text()))
	case len(p.running) > 0:
		r.all.broke(name)
		r.broken = append(r.broken, fmt.Sprintf("%s ended during %s:\n%s", name, strings.Join(p.running, ", "), p.text()))
	case !p.failed:
		r.all.broke(name)
		r.broken = append(r.broken, fmt.Sprintf("%s failed outside of its tests:\n%s", name, p.text()))
	}
}

func (p *pkgOutput) add(line string) {
	line = short(strings.TrimRight(line, "\n"))
	if len(p.tail) == tailLines {
		p.tail = slices.Delete(p.tail, 0, 1)
	}
	p.tail = append(p.tail, line)
}

func short(line string) string {
	if len(line) > tailLine {
		return line[:tailLine] + "..."
	}
	return line
}

func (p *pkgOutput) text() string { return "\t" + strings.Join(p.tail, "\n\t") }

// maxEvent bounds a line of go test's JSON output.
const maxEvent = 4 << 20

// read reads events until the end.  What is no event, such as a line that is longer
// than an event may be, is left out.
func (r *runOutput) read(from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) <= maxEvent {
			line = append(line, part...)
		} else {
			line = append(line[:0], 0) // no event any more
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.event(e)
		}
		line = line[:0]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// errInterrupted is the end of a run in its middle.
var errInterrupted = errors.New("interrupted")

// once runs the tests once; a failed test is no error of it.  logFile stays if
// something failed, or if the run was interrupted: a test may have hung.
func (r *runOutput) once(ctx context.Context, root string, pkgs []string, pattern, logFile string) (err error) {
	args := []string{"-json", "-count=1", "-timeout", "60m"}
	if pattern != "" {
		args = append(args, "-run", pattern)
	}
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer func() {
		log.Close()
		if r.kept = r.failed || err != nil; !r.kept {
			os.Remove(logFile)
		}
	}()
	test := goTest(ctx, root, append(args, pkgs...)...)
	if r.jitter > 0 {
		test.Env = append(test.Env, "IBNET_LAB_JITTER="+r.jitter.String())
	}
	pipe, err := test.StdoutPipe()
	if err != nil {
		return err
	}
	w := bufio.NewWriter(log)
	var complaint tail // of the go command itself
	r.log, test.Stderr = w, &complaint
	test.WaitDelay = 10 * time.Second // for processes that inherited standard error
	if err := test.Start(); err != nil {
		return err
	}
	readErr := r.read(pipe)
	err = test.Wait()
	_, _ = w.Write(complaint)
	flushErr := w.Flush()
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	if readErr != nil {
		return fmt.Errorf("output of go test: %w", readErr)
	}
	if err != nil && !r.failed {
		r.failed = true
		r.all.broke("go test")
		r.broken = append(r.broken, fmt.Sprintf("go test: %v\n%s", err, complaint))
	}
	return flushErr
}

// tail keeps the end of what is written to it.
type tail []byte

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p[max(len(p)-tailSize, 0):]...)
	if over := len(*t) - tailSize; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
	return len(p), nil
}
