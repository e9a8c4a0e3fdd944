package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// scenario is a test that boots a guest.
type scenario struct {
	pkg  string // folder relative to the module, ./lab
	name string // TestPing
	doc  string // first sentence of its comment
}

// moduleRoot returns the folder of go.mod above the working folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("not in a Go module")
		}
		dir = filepath.Dir(dir)
	}
}

// scenarios finds the tests below root that boot a guest, themselves or by functions
// of their package.  broken are the files that could not be read to their end.
func scenarios(root string) (found []scenario, broken []error, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "vendor") {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(p, "*_test.go"))
		if err != nil {
			return err
		}
		var funcs []*ast.FuncDecl
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				broken = append(broken, err)
			}
			if f == nil {
				continue
			}
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
					funcs = append(funcs, fn)
				}
			}
		}
		boots := bootGuests(funcs)
		for _, fn := range funcs {
			if !strings.HasPrefix(fn.Name.Name, "Test") || !boots[fn.Name.Name] {
				continue
			}
			doc := strings.Join(strings.Fields(fn.Doc.Text()), " ")
			if i := strings.Index(doc, ". "); i > 0 {
				doc = doc[:i+1]
			}
			found = append(found, scenario{"./" + rel, fn.Name.Name, doc})
		}
		return nil
	})
	return found, broken, err
}

// bootGuests finds which functions of a package boot guests: those that call the lab,
// and those that name such a function.
func bootGuests(funcs []*ast.FuncDecl) map[string]bool {
	boots := map[string]bool{}
	for known := -1; known < len(boots); {
		known = len(boots)
		for _, fn := range funcs {
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					x, ok := n.X.(*ast.Ident)
					if ok && x.Name == "lab" && slices.Contains([]string{"Run", "RunNet", "Boot"}, n.Sel.Name) {
						boots[fn.Name.Name] = true
					}
				case *ast.Ident:
					if boots[n.Name] {
						boots[fn.Name.Name] = true
					}
				}
				return true
			})
		}
	}
	return boots
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the scenarios of this module",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := moduleRoot()
			if err != nil {
				return err
			}
			all, broken, err := scenarios(root)
			if err != nil {
				return err
			}
			for _, err := range broken {
				fmt.Fprintln(cmd.ErrOrStderr(), "ibnetlab: skipped:", err)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.name, s.pkg, s.doc)
			}
			return w.Flush()
		},
	}
}

// find returns the scenarios that arg names, [FOLDER/]TestName[/SUBTEST], and the
// subtest.
func find(all []scenario, arg string) (hits []scenario, sub string) {
	dir := ""
	if i := strings.Index(arg, "/Test"); i >= 0 {
		dir, arg = "./"+strings.TrimPrefix(arg[:i], "./"), arg[i+1:]
	}
	want, sub, _ := strings.Cut(arg, "/")
	for _, s := range all {
		if (dir == "" || dir == s.pkg) && (strings.EqualFold(s.name, want) || strings.EqualFold(s.name, "Test"+want)) {
			hits = append(hits, s)
		}
	}
	return hits, sub
}

// goTest is go test with the lab required.  When ctx ends, all that it has started ends.
func goTest(ctx context.Context, root string, args ...string) *exec.Cmd {
	test := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	test.Dir = root
	test.Env = append(os.Environ(), "CGO_ENABLED=0", "IBNET_LAB=require")
	// A killed go command would leave the test running.
	test.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	test.Cancel = func() error { return syscall.Kill(-test.Process.Pid, syscall.SIGKILL) }
	return test
}

func runCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "run SCENARIO [-- GO TEST FLAGS]",
		Short: "run one scenario and keep its logs and timeline",
		Example: `  ibnetlab run TestHotplug                          # in every package that has one of that name
  ibnetlab run lab/scenario/TestHotplug             # in this package
  ibnetlab run TestGroupMTU/2K -- -timeout 20m      # one subtest`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := moduleRoot()
			if err != nil {
				return err
			}
			all, broken, err := scenarios(root)
			if err != nil {
				return err
			}
			hits, sub := find(all, args[0])
			if len(hits) == 0 {
				return errors.Join(append(broken, fmt.Errorf("no scenario %q; for a list: ibnetlab list", args[0]))...)
			}
			if err := checkPattern(sub); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			ran := false
			for _, s := range hits {
				pattern := "^" + s.name + "$"
				if sub != "" {
					pattern += "/" + sub
				}
				test := goTest(cmd.Context(), root, append([]string{"-v", "-count=1", "-run", pattern, s.pkg}, args[1:]...)...)
				if keep {
					test.Env = append(test.Env, "IBNET_LAB_KEEP=1", "IBNET_LAB_TIMELINE=1")
				}
				seen := &subtests{w: cmd.OutOrStdout(), of: s.name}
				test.Stdout, test.Stderr = seen, cmd.ErrOrStderr()
				if err := test.Run(); err != nil {
					return err
				}
				ran = ran || sub == "" || seen.ran
			}
			if !ran {
				return fmt.Errorf("%s has no subtest %q; subtests within one guest cannot be selected", hits[0].name, sub)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&keep, "keep", true, "keep the folders of the guests: console, logs, timeline.svg")
	return c
}

// subtests passes the output of go test -v on, and notes whether a subtest ran: go
// test takes it for success if none is chosen.
type subtests struct {
	w    io.Writer
	of   string // the test
	part []byte // of a line
	ran  bool
}

func (s *subtests) Write(p []byte) (int, error) {
	for l := range bytes.Lines(p) {
		if s.part = append(s.part, l...); s.part[len(s.part)-1] != '\n' && len(s.part) < 1<<10 {
			break
		}
		text, ok := bytes.CutPrefix(s.part, []byte("=== RUN "))
		s.ran = s.ran || ok && bytes.HasPrefix(bytes.TrimSpace(text), []byte(s.of+"/"))
		s.part = s.part[:0]
	}
	return s.w.Write(p)
}
