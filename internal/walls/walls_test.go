// Package walls has no code: its tests keep the import walls between the
// packages of the project, each with its reason.
package walls

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A wall lists what a package and those below it may not import, directly or
// through another package of this module.
type wall struct {
	pkg    string   // package path below the module, and everything under it
	alone  bool     // without what is under it
	forbid []string // import paths, and everything under them
	only   bool     // forbid everything that is not the standard library
	why    string
}

const module = "ibnetworkd"

// effects are the packages that do I/O, or reach those that do.
var effects = []string{
	"os", "net", "net/http", "syscall", "os/exec",
	"golang.org/x/sys", "github.com/mdlayher/netlink", "github.com/jsimonetti/rtnetlink",
	"github.com/godbus/dbus", "github.com/fsnotify/fsnotify", "github.com/coreos/go-systemd",
	module + "/internal/kernel", module + "/daemon/bus",
}

// order is that of docs/architecture.md: each imports only what is before it.
var order = []string{"ib", "units", "link", "ipoib", "roce", "smctl", "daemon", "cmd"}

// above are the packages from one on in that order, and the lab, which is above all.
func above(first string) []string {
	var out []string
	for _, p := range order[slices.Index(order, first):] {
		out = append(out, module+"/"+p)
	}
	return append(out, module+"/lab", module+"/sm")
}

var walls = []wall{
	{pkg: "ib", only: true, why: "value types are shared by both programs and must not add dependencies"},
	{pkg: "units", forbid: effects,
		why: "a unit's meaning depends on its bytes alone, so that verify, import and the daemon agree"},
	{pkg: "link", forbid: effects, why: "a plan is a value: it can be tested, printed and replayed from a snapshot"},
	{pkg: "ipoib", forbid: effects, why: "desired state to ops is a pure function"},
	{pkg: "roce", forbid: effects, why: "desired state to ops is a pure function"},
	{pkg: "smctl", alone: true, forbid: effects,
		why: "whether to run a subnet manager is decided from values, so that a thousand nodes can be simulated"},
	{pkg: "smctl", forbid: []string{module + "/daemon"}, why: "the daemon publishes what smctl says, not the other way round"},
	{pkg: "daemon/plan", forbid: effects, why: "the same snapshot gives the same plan on every machine"},
	{pkg: "sm", forbid: []string{module + "/units", module + "/link", module + "/ipoib", module + "/roce", module + "/smctl",
		module + "/daemon", module + "/cmd", module + "/lab"},
		why: "the subnet manager is a program of its own that starts without the daemon and without the lab"},
	{pkg: "sm/fabric", forbid: effects, why: "stages are functions from values to values"},
	{pkg: "sm/mad", forbid: effects, why: "a codec reads bytes, not devices"},
	{pkg: "sm/discover", forbid: effects, why: "events in, effects out: the engine owns the wire"},
	{pkg: "sm/elect", forbid: effects, why: "events in, effects out: the engine owns the wire"},
	{pkg: "sm/lid", forbid: effects, why: "LIDs are decided from values; the engine writes the file"},
	{pkg: "sm/route", forbid: effects, why: "same fabric, same forwarding tables"},
	{pkg: "sm/guidfile", forbid: effects, why: "a grammar reads bytes, not files"},
	{pkg: "sm/explain", forbid: effects, why: "same fabric and tables, same explanation"},
	{pkg: "sm/dump", forbid: effects, why: "a format is text of values"},
	{pkg: "sm/picture", forbid: effects, why: "same fabric, same picture"},
	{pkg: "sm/mcast", forbid: effects, why: "same fabric and members, same trees"},
	{pkg: "sm/program", forbid: effects, why: "the difference of two values is a value"},
	{pkg: "ib/partition", forbid: effects, why: "a partition file's meaning depends on its bytes alone"},
	{pkg: "sm/pkey", forbid: effects, why: "a configuration and the fabric give the tables"},
	{pkg: "sm/sa", forbid: effects, why: "a request and the fabric give the answer"},
	{pkg: "sm/qos", forbid: effects, why: "tables are decided from values"},
	{pkg: "sm/qos/policy", forbid: effects, why: "a grammar reads bytes, not files"},
	{pkg: "units", forbid: above("link"), why: "a unit is text with a meaning; what follows from it is decided above"},
	{pkg: "link", forbid: above("ipoib"), why: "the model of links serves the planners of IPoIB and RoCE, which use it"},
	{pkg: "ipoib", forbid: above("roce"), why: "IPoIB and RoCE are planned beside each other, and joined by daemon/plan"},
	{pkg: "roce", forbid: append(above("smctl"), module+"/ipoib"),
		why: "IPoIB and RoCE are planned beside each other, and joined by daemon/plan"},
	{pkg: "smctl", forbid: []string{module + "/cmd", module + "/lab"}, why: "what decides does not know who shows it"},
	{pkg: "daemon", forbid: []string{module + "/cmd", module + "/lab"}, why: "mains use the daemon, not the other way round"},
	{pkg: "cmd/ibnetctl/diagnose", forbid: effects, why: "the same observations give the same diagnosis, of a report too"},
	{pkg: "cmd/ibnetctl/importer", forbid: effects, why: "the text of files gives the text of units"},
	{pkg: "cmd/ibnetctl/hosts", forbid: effects, why: "a list and units give rows"},
	{pkg: "internal/kernel", forbid: above("units"),
		why: "a kernel client knows bytes, not intentions"},
}

// timeless are the packages in which now is an input.
var timeless = []string{
	"ib", "units", "link", "ipoib", "roce", "daemon/plan",
	"sm/fabric", "sm/mad", "sm/discover", "sm/elect", "sm/lid", "sm/route", "sm/picture", "sm/mcast", "sm/program", "ib/partition",
	"sm/pkey", "sm/sa", "sm/qos", "sm/explain", "sm/dump", "sm/guidfile",
}

type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Standard   bool
	GoFiles    []string
	Imports    []string
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Name,Standard,GoFiles,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatal(err)
	}
	pkgs := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs[p.ImportPath] = p
	}
}

func under(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// forbidden reports whether a wall forbids an import. os and net are single packages
// here, not trees: net/netip does no I/O.
func forbidden(path string, w wall) bool {
	for _, f := range w.forbid {
		switch f {
		case "os", "net":
			if path == f {
				return true
			}
		default:
			if under(path, f) {
				return true
			}
			// under also matches major versions: rtnetlink/v2.
		}
	}
	return false
}

func TestWalls(t *testing.T) {
	pkgs := list(t)
	for _, w := range walls {
		for path, p := range pkgs {
			if !under(path, module+"/"+w.pkg) || p.Name == "main" || w.alone && path != module+"/"+w.pkg {
				continue
			}
			// Walk what the package reaches inside the module; the standard
			// library's and other modules' own imports do not count.
			seen := map[string]bool{}
			var walk func(path string, trail []string)
			walk = func(path string, trail []string) {
				for _, imp := range pkgs[path].Imports {
					if seen[imp] {
						continue
					}
					seen[imp] = true
					way := append(trail[:len(trail):len(trail)], imp)
					if w.only && !pkgs[imp].Standard && !under(imp, module+"/"+w.pkg) || forbidden(imp, w) {
						t.Errorf("%s imports %s\n\twall of %s: %s", way[0], strings.Join(way[1:], " -> "), w.pkg, w.why)
						continue
					}
					if under(imp, module) {
						walk(imp, way)
					}
				}
			}
			walk(path, []string{path})
		}
	}
}
