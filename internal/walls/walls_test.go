// Package walls holds no code: its test keeps the import walls between the
// rooms of the project, each with the reason why it stands.
package walls

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// A wall says what the packages under a room may not import, directly or
// through another package of this module.
type wall struct {
	room   string   // package path below the module, and everything under it
	except []string // packages under the room to which the wall does not apply
	forbid []string // import paths, and everything under them
	only   bool     // forbid everything that is not the standard library
	why    string
}

const module = "ibnetworkd"

// effects are the packages through which a decision would reach the world.
var effects = []string{
	"os", "net", "net/http", "syscall", "os/exec",
	"golang.org/x/sys", "github.com/mdlayher/netlink", "github.com/jsimonetti/rtnetlink",
	"github.com/godbus/dbus", "github.com/fsnotify/fsnotify", "github.com/coreos/go-systemd",
	module + "/internal/kernel", module + "/daemon/bus",
}

var walls = []wall{
	{room: "ib", only: true, why: "value types are shared by both programs and must drag nothing along"},
	{room: "units", except: []string{"units/gen"}, forbid: effects, why: "a unit's meaning depends on its bytes alone, so that verify, import and the daemon agree"},
	{room: "link", forbid: effects, why: "a plan is a value: it can be tested, printed and replayed from a snapshot"},
	{room: "ipoib", forbid: effects, why: "desired state to ops is a pure function"},
	{room: "roce", forbid: effects, why: "desired state to ops is a pure function"},
	{room: "smctl", except: []string{"smctl/worker", "smctl/probe", "smctl/files"}, forbid: effects, why: "whether to run a subnet manager is decided from values, so that a thousand nodes can be simulated"},
	{room: "smctl", forbid: []string{module + "/daemon"}, why: "the daemon publishes what smctl says, not the other way round"},
	{room: "daemon/plan", forbid: effects, why: "the same snapshot gives the same plan on every machine"},
	{room: "sm", forbid: []string{module + "/daemon", module + "/link", module + "/units", module + "/ipoib", module + "/roce", module + "/lab"}, why: "the subnet manager is a program of its own that starts without the daemon and without the lab"},
	{room: "sm/fabric", forbid: effects, why: "stages are functions from values to values"},
	{room: "sm/mad", forbid: effects, why: "a codec reads bytes, not devices"},
	{room: "sm/discover", forbid: effects, why: "events in, effects out: the engine owns the wire"},
	{room: "sm/elect", forbid: effects, why: "events in, effects out: the engine owns the wire"},
	{room: "sm/lid", forbid: effects, why: "LIDs are decided from values; the engine writes the file"},
	{room: "sm/route", forbid: effects, why: "same fabric, same forwarding tables"},
	{room: "sm/picture", forbid: effects, why: "same fabric, same picture"},
	{room: "sm/mcast", forbid: effects, why: "same fabric and members, same trees"},
	{room: "sm/program", forbid: effects, why: "the difference of two values is a value"},
	{room: "ib/partition", forbid: effects, why: "a partition file's meaning depends on its bytes alone"},
	{room: "sm/pkey", forbid: effects, why: "a configuration and the fabric give the tables"},
	{room: "sm/sa", forbid: effects, why: "a request and the fabric give the answer"},
	{room: "sm/qos", forbid: effects, why: "tables are decided from values"},
	{room: "internal/kernel", forbid: []string{module + "/link", module + "/daemon", module + "/units", module + "/sm"}, why: "a kernel client knows bytes, not intentions"},
}

// timeless are the rooms in which now is an input.
var timeless = []string{
	"ib", "units", "link", "ipoib", "roce", "daemon/plan",
	"sm/fabric", "sm/mad", "sm/discover", "sm/elect", "sm/lid", "sm/route", "sm/picture", "sm/mcast", "sm/program", "ib/partition", "sm/pkey", "sm/sa", "sm/qos",
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

// forbidden matches an import against a wall. os and net are meant as packages,
// not as trees: net/netip and os/user have walls of their own reasons.
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
			// Major versions hang on the path: rtnetlink/v2.
		}
	}
	return false
}

func TestWalls(t *testing.T) {
	pkgs := list(t)
	for _, w := range walls {
		for path, p := range pkgs {
			if !under(path, module+"/"+w.room) || p.Name == "main" || excepted(path, w) {
				continue
			}
			// Walk what the package reaches inside the module; the standard
			// library's and other modules' own imports are their business.
			seen := map[string]bool{}
			var walk func(path string, trail []string)
			walk = func(path string, trail []string) {
				for _, imp := range pkgs[path].Imports {
					if seen[imp] {
						continue
					}
					seen[imp] = true
					way := append(trail[:len(trail):len(trail)], imp)
					if w.only && !pkgs[imp].Standard && !under(imp, module+"/"+w.room) || forbidden(imp, w) {
						t.Errorf("%s imports %s\n\twall of %s: %s", way[0], strings.Join(way[1:], " -> "), w.room, w.why)
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

func excepted(path string, w wall) bool {
	for _, e := range w.except {
		if under(path, module+"/"+e) {
			return true
		}
	}
	return false
}
