package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// outcome is what became of one test over all runs.
type outcome struct {
	name               string
	runs, bad, skipped int
	shortest, longest  float64 // seconds, of those that passed
}

// event is a line of go test's JSON output.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// flakes counts the outcomes of top-level tests.
type flakes map[string]*outcome

func (f flakes) add(e event) {
	if e.Test == "" || strings.Contains(e.Test, "/") {
		return
	}
	switch e.Action {
	case "pass", "fail", "skip":
	default:
		return
	}
	o := f[e.Package+" "+e.Test]
	if o == nil {
		o = &outcome{name: e.Test}
		f[e.Package+" "+e.Test] = o
	}
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
	c := &cobra.Command{
		Use:   "flakes [PACKAGE...]",
		Short: "Run the scenarios many times and count what fails (default: ./lab/scenario)",
		RunE: func(cmd *cobra.Command, pkgs []string) error {
			root, err := moduleRoot()
			if err != nil {
				return err
			}
			if len(pkgs) == 0 {
				pkgs = []string{"./lab/scenario"}
			}
			if logs == "" {
				if logs, err = os.MkdirTemp("", "ibnetlab-flakes-"); err != nil {
					return err
				}
			}
			if err := os.MkdirAll(logs, 0o755); err != nil {
				return err
			}
			all := flakes{}
			out := cmd.OutOrStdout()
			for i := 1; i <= n; i++ {
				start := time.Now()
				before := all.failed()
				if err := runOnce(cmd.Context(), root, pkgs, pattern, filepath.Join(logs, fmt.Sprintf("run-%03d.log", i)), all); err != nil {
					return err
				}
				fmt.Fprintf(out, "run %d of %d: %v, %d failed\n", i, n, time.Since(start).Round(time.Second), all.failed()-before)
			}
			if err := all.table(out); err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("no test matches %q", pattern)
			}
			if b := all.failed(); b > 0 {
				return fmt.Errorf("%d failures in %d runs; the logs are in %s", b, n, logs)
			}
			fmt.Fprintf(out, "%d runs without a failure\n", n)
			return nil
		},
	}
	c.Flags().IntVarP(&n, "runs", "n", 50, "how often")
	c.Flags().StringVar(&pattern, "run", "", "regular expression of the tests, as for go test")
	c.Flags().StringVar(&logs, "logs", "", "folder for the logs of runs that failed (default: a new one)")
	return c
}

// runOnce runs the tests once; a failed test is no error of it.
func runOnce(ctx context.Context, root string, pkgs []string, pattern, logFile string, all flakes) error {
	args := []string{"-json", "-count=1", "-timeout", "60m"}
	if pattern != "" {
		args = append(args, "-run", pattern)
	}
	test := goTest(ctx, root, append(args, pkgs...)...)
	pipe, err := test.StdoutPipe()
	if err != nil {
		return err
	}
	var complaint bytes.Buffer
	test.Stderr = &complaint
	if err := test.Start(); err != nil {
		return err
	}
	var text strings.Builder
	bad := false
	for sc := bufio.NewScanner(pipe); sc.Scan(); {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			continue
		}
		text.WriteString(e.Output)
		bad = bad || e.Action == "fail"
		all.add(e)
	}
	err = test.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bad {
		return os.WriteFile(logFile, []byte(text.String()), 0o644)
	}
	if err != nil {
		return fmt.Errorf("go test: %w\n%s", err, complaint.String())
	}
	return nil
}
