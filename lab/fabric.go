package lab

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const swibCtl = "/sys/kernel/debug/swib/ctl"

// loadSwib loads the fabric module with what the config asks for.
func loadSwib(c Config, wires []string) error {
	var cmds []string
	if c.Topology != "" {
		var err error
		if cmds, err = Topology("topology", c.Topology); err != nil {
			return err
		}
		c.HCAs = 0
	}
	cmds = append(cmds, c.Commands...)
	params := []string{fmt.Sprintf("nhca=%d", c.HCAs), fmt.Sprintf("nports=%d", c.Ports)}
	switch {
	case c.Topology != "":
		params = append(params, "topo=2")
	case c.Cabled:
		params = append(params, "topo=0")
	}
	if c.PKeys != 0 {
		params = append(params, fmt.Sprintf("pkeys=%d", c.PKeys))
	}
	if c.Swib != "" {
		params = append(params, c.Swib)
	}
	if err := loadModule(shareDir+"/swib.ko", strings.Join(params, " ")); err != nil {
		return err
	}
	for _, cmd := range cmds {
		if err := control(cmd); err != nil {
			return err
		}
	}
	return plugWires(c.Machine, wires)
}

// control gives the fabric one command.
func control(line string) error {
	f, err := os.OpenFile(swibCtl, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		return fmt.Errorf("fabric control %q: %w", line, err)
	}
	return nil
}

// LoadSwib loads the fabric module with the given parameters, for tests with
// HCAs: -1.
func (g *G) LoadSwib(params string) {
	g.Helper()
	if err := checkParams(params); err != nil {
		g.Fatal(err)
	}
	if err := loadModule(shareDir+"/swib.ko", params); err != nil {
		g.Fatal(err)
	}
}

// Ctl writes one line to the fabric's control file, e.g. "link h2/1 down"; see
// swib/README.md.
func (g *G) Ctl(format string, args ...any) {
	g.Helper()
	line := fmt.Sprintf(format, args...)
	g.Mark("fabric", "%s", line)
	if err := control(line); err != nil {
		g.Fatal(err)
	}
}

// FabricPort is one line of the control file: the state of a port as the fabric sees it.
type FabricPort map[string]string

// Int returns a decimal field, 0 if it is not there.
func (p FabricPort) Int(name string) int64 {
	n, _ := strconv.ParseInt(p[name], 10, 64)
	return n
}

// FabricPort returns what the fabric knows of a port.  node is "switch0" or
// "hca0"; fields are guid, phys, state, lid, smlid, tx, rx, disc, rc (connected
// mode messages sent), rcmax (bytes of the longest) and peer.
func (g *G) FabricPort(node string, port int) FabricPort {
	g.Helper()
	want := fmt.Sprintf("%s/%d ", node, port)
	for l := range strings.Lines(g.fabricState()) {
		if rest, ok := strings.CutPrefix(l, want); ok {
			f := strings.Fields(rest)
			p := FabricPort{}
			for i := 0; i+1 < len(f); i += 2 {
				p[f[i]] = f[i+1]
			}
			return p
		}
	}
	g.Fatalf("the fabric has no port %s/%d", node, port)
	return nil
}

// mostFabric bounds what is read of the control file; the largest fabric that the
// module can make has some 67,000 lines.
const mostFabric = 32 << 20

// fabricState is the text of the control file.
func (g *G) fabricState() string {
	g.Helper()
	f, err := os.Open(swibCtl)
	if err != nil {
		g.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostFabric+1))
	if err != nil {
		g.Fatal(err)
	}
	if len(text) > mostFabric {
		g.Fatalf("%s has more than %d bytes", swibCtl, mostFabric)
	}
	return string(text)
}

// FaultRule is a fault rule of the control file as the fabric sees it; see
// swib/README.md for what the options mean.
type FaultRule struct {
	Port    string // "hca0/1", "switch0/2" or "all"
	Action  string // "drop", "delay", "dup", "corrupt"
	Kind    string // "mad", "smp", "gmp", "data", "all"
	Percent int
	MS      int
	Attr    uint16 // 0: any, as of the next two
	Method  uint8
	Class   uint8
	Count   int   // packets until the rule is used up; -1: no end
	Hits    int64 // packets that it has hit
}

// FaultRules returns the fault rules in the order in which packets meet them, which
// is that of the commands.
func (g *G) FaultRules() []FaultRule {
	g.Helper()
	var rules []FaultRule
	for l := range strings.Lines(g.fabricState()) {
		if !strings.HasPrefix(l, "fault ") {
			continue
		}
		var r FaultRule
		if _, err := fmt.Sscanf(l, "fault %s %s kind %s percent %d ms %d attr %v method %v class %v count %d hits %d",
			&r.Port, &r.Action, &r.Kind, &r.Percent, &r.MS, &r.Attr, &r.Method, &r.Class, &r.Count, &r.Hits); err != nil {
			g.Fatalf("fault rule %q: %v", l, err)
		}
		rules = append(rules, r)
	}
	return rules
}

// FaultHits returns how many packets fault rule i has hit, counted from 0; there must
// be such a rule.
func (g *G) FaultHits(i int) int64 {
	g.Helper()
	rules := g.FaultRules()
	if i < 0 || i >= len(rules) {
		g.Fatalf("there is no fault rule %d, but %d of them", i, len(rules))
	}
	return rules[i].Hits
}

// PortFile returns a file of /sys/class/infiniband/DEV/ports/PORT.
func (g *G) PortFile(dev string, port int, name string) string {
	return g.Read(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/%s", dev, port, name))
}

// PortGUID returns the GUID of a port as tools take it, such as "0x0253574942000101".
func (g *G) PortGUID(dev string, port int) string {
	g.Helper()
	gid := strings.ReplaceAll(g.PortFile(dev, port, "gids/0"), ":", "")
	if len(gid) != 32 {
		g.Fatalf("there is no port %s/%d", dev, port)
	}
	return "0x" + gid[16:]
}

// WaitPort waits until a port is in a state, given as sysfs names it: "ACTIVE",
// "INIT", "DOWN".
func (g *G) WaitPort(dev string, port int, state string, limit time.Duration) time.Duration {
	g.Helper()
	return g.WaitFor(limit, func() string {
		now := g.PortFile(dev, port, "state")
		if strings.HasSuffix(now, ": "+state) {
			return ""
		}
		return fmt.Sprintf("%s/%d is %q, not %s", dev, port, now, state)
	})
}

// WaitActive waits until every InfiniBand port of the guest is Active.
func (g *G) WaitActive(limit time.Duration) time.Duration {
	g.Helper()
	return g.WaitFor(limit, func() string {
		files, _ := filepath.Glob("/sys/class/infiniband/swib*/ports/*/state")
		if len(files) == 0 {
			return "no InfiniBand port"
		}
		for _, f := range files {
			if s := g.Read(f); s != "4: ACTIVE" {
				return f + " is " + s
			}
		}
		return ""
	})
}

// SM is how to run a subnet manager.
type SM struct {
	Dev        string   // "" is swib0
	Port       int      // 0 is 1
	Partitions string   // text of partitions.conf; "" is the default partition with 4 KiB MTU
	File       string   // where Partitions go, for a test that changes them and sends SIGHUP; "" is a file of the test's own
	Args       []string // further arguments of the program
	NoWait     bool     // do not wait for the ports to become Active
}

// SM starts ibnetsm, the project's own subnet manager, and waits until all ports
// are Active. IBNET_LAB_SM=opensm in the environment takes Debian's instead, to
// compare; arguments are left out then, for they are ibnetsm's.
func (g *G) SM(s SM) *Proc {
	g.Helper()
	switch v := os.Getenv("IBNET_LAB_SM"); v {
	case "", "ibnetsm":
	case "opensm":
		s.Args = nil
		return g.Opensm(s)
	default:
		g.Fatalf("IBNET_LAB_SM=%s: want ibnetsm or opensm", v)
	}
	guid, conf := g.smFiles(&s)
	p := g.Start("ibnetsm", append([]string{"run", "--port-guid=" + guid, "--partitions=" + conf, "--state-dir=" + g.TempDir(),
		"--socket=/run/ibnetsm/" + s.Dev + ".sock"}, s.Args...)...)
	if !s.NoWait {
		g.WaitActive(30 * time.Second)
	}
	return p
}

// smFiles fills in what s leaves open, and gives the port's GUID and the file
// with the partitions.
func (g *G) smFiles(s *SM) (guid, conf string) {
	g.Helper()
	s.Dev = cmp.Or(s.Dev, "swib0")
	s.Port = cmp.Or(s.Port, 1)
	s.Partitions = cmp.Or(s.Partitions, "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n")
	if conf = s.File; conf == "" {
		conf = g.TempDir() + "/partitions.conf"
	}
	g.Write(conf, s.Partitions)
	return g.PortGUID(s.Dev, s.Port), conf
}

// Opensm starts Debian's subnet manager and waits until all ports are Active.
// It is for tests that are about opensm, or about the lab alone.
func (g *G) Opensm(s SM) *Proc {
	g.Helper()
	guid, conf := g.smFiles(&s)
	// One whose adapter is gone writes errors as fast as it can; its log is truncated each time and bounded.
	args := append([]string{"-g", guid, "-f", "/tmp/opensm-" + s.Dev + ".log", "-e", "-L", "32", "-P", conf, "-s", "5"}, s.Args...)
	p := g.Start("opensm", args...)
	if !s.NoWait {
		g.WaitActive(30 * time.Second)
	}
	return p
}
