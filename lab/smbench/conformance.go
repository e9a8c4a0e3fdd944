package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// check is one run of an unmodified tool on a host that is not the manager's.
// It passes with exit status 0 when must is in its output and not is not.
// Words in braces are filled in: {S} this host's LID, {M} the manager's, {W} a
// switch's, {P} and {Q} those of two more hosts (ibping and ibsysstat answer
// there), {N} the number of nodes, {GID} and {MGID} this port's and the
// manager's GID.
type check struct{ name, command, must, not string }

var checks = []check{
	{"osmtest-c", `osmtest -f c -M 1 -i inv.dat -l osmtest.log -m 0x40`, `OSMTEST: TEST .*PASS`, `FAIL|ERR`},
	{"osmtest-v", `osmtest -f v -M 1 -i inv.dat -l osmtest.log -m 0x40`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-a", `osmtest -f a -M 1 -i inv.dat -l osmtest.log -m 0x40`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-s", `osmtest -f s -M 1 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-e", `osmtest -f e -M 1 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-m1", `osmtest -f m -M 1 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-m2", `osmtest -f m -M 2 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-m3", `osmtest -f m -M 3 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-q", `osmtest -f q -M 1 -i inv.dat -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-t", `osmtest -f t -w 3 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-f1", `osmtest -f f -s1 -M 1 -i inv.dat -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-f2", `osmtest -f f -s2 -M 1 -i inv.dat -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-f3", `osmtest -f f -s3 -M 1 -i inv.dat -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-f4", `osmtest -f f -s4 -M 1 -i inv.dat -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-m4", `osmtest -f m -M 4 -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-grh", `osmtest -f c -G -i inv2.dat -l osmtest.log`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"osmtest-all", `osmtest -M 1 -i inv.dat -l osmtest.log -m 0x40`, `OSMTEST: TEST .*PASS`, `FAIL`},
	{"ibstat", `ibstat`, `State: Active`, ``},
	{"ibstat-p", `ibstat -p`, `0x`, ``},
	{"ibstatus", `ibstatus`, `ACTIVE`, ``},
	{"ibaddr", `ibaddr`, `LID`, ``},
	{"sminfo", `sminfo`, `SMINFO_MASTER`, ``},
	{"ibnetdiscover", `ibnetdiscover`, `Switch`, `failed`},
	{"ibnetdiscover-p", `ibnetdiscover -p`, `SW`, ``},
	{"iblinkinfo", `iblinkinfo`, `LinkUp`, ``},
	{"ibhosts", `ibhosts`, `Ca`, ``},
	{"ibswitches", `ibswitches`, `Switch`, ``},
	{"ibnodes", `ibnodes`, `Ca`, ``},
	{"ibqueryerrors", `ibqueryerrors`, `Summary`, ``},
	{"smpquery-ni", `smpquery nodeinfo {M}`, `NodeType`, ``},
	{"smpquery-nd", `smpquery nodedesc {M}`, `Node`, ``},
	{"smpquery-pi", `smpquery portinfo {M}`, `LinkState:\.+Active`, ``},
	{"smpquery-si", `smpquery switchinfo {W}`, `LinearFdbCap`, ``},
	{"smpquery-pkeys", `smpquery pkeys {M}`, `0xffff`, ``},
	{"smpquery-sl2vl", `smpquery sl2vl {M}`, `SL`, ``},
	{"smpquery-vlarb", `smpquery vlarb {M}`, `VL`, ``},
	{"smpquery-gi", `smpquery guidinfo {M}`, `0x`, ``},
	{"smpquery-mepi", `smpquery mepi {M}`, `StateChange|Link`, ``},
	{"smpquery-dr", `smpquery -D nodeinfo 0,1`, `Switch`, ``},
	{"ibtracert", `ibtracert {S} {M}`, `To ca`, ``},
	{"ibroute", `ibroute {W}`, `valid lids dumped`, ``},
	{"ibroute-M", `ibroute -M {W}`, `valid mlids dumped`, ``},
	{"dump_lfts", `dump_lfts`, `Unicast lids`, ``},
	{"dump_mfts", `dump_mfts`, `Multicast mlids`, ``},
	{"perfquery", `perfquery`, `PortXmitPkts`, ``},
	{"perfquery-x", `perfquery -x {M}`, `PortXmitPkts`, ``},
	{"ibportstate", `ibportstate {W} 1`, `LinkState`, ``},
	{"ibping", `ibping -c 3 {P}`, `3 received`, ``},
	{"ibsysstat", `ibsysstat {Q}`, `sysstat|number of CPUs|\S`, ``},
	{"ibidsverify", `ibidsverify`, ``, `duplicate`},
	{"check_lft_balance", `sh -c 'dump_lfts > l && ibnetdiscover --cache c >/dev/null && check_lft_balance -l l -i c'`, ``, `rror`},
	{"sa-classportinfo", `saquery -c`, `Capability mask2?\.+0x`, ``},
	{"sa-nr-all", `saquery NR`, `NodeRecord dump`, ``},
	{"sa-nr-count", `sh -c 'test $(saquery NR | grep -c "NodeRecord dump") -eq {N}'`, ``, ``},
	{"sa-nr-lid", `saquery NR {M}`, `NodeRecord dump`, ``},
	{"sa-nd", `saquery -N`, `NodeRecord`, ``},
	{"sa-list", `saquery -L {smhost}`, `\d+`, ``},
	{"sa-getlid", `saquery -l {smhost}`, `\d`, ``},
	{"sa-getguid", `saquery -G {smhost}`, `0x`, ``},
	{"sa-pir", `saquery PIR {M}`, `PortInfoRecord dump`, ``},
	{"sa-issm", `saquery -s`, `IsSM`, ``},
	{"sa-sl2vl", `saquery SL2VL {M}`, `SL2VLTableRecord dump`, ``},
	{"sa-pkr", `saquery --smkey 1 PKTR {M}`, `(?i)pkey`, ``},
	{"sa-vlarb", `saquery VLAR {M}`, `VLArbTableRecord dump`, ``},
	{"sa-iir", `saquery IIR`, ``, `ERROR`},
	{"sa-lr", `saquery LR {M}`, `LinkRecord dump`, ``},
	{"sa-lr-all", `saquery LR`, `LinkRecord dump`, ``},
	{"sa-sr", `saquery SR`, ``, `ERROR`},
	{"sa-pr", `saquery --sgid-to-dgid {GID}-{MGID}`, `PathRecord dump`, ``},
	{"sa-pr-lid", `saquery PR {S}:{M}`, `PathRecord dump`, ``},
	{"sa-pr-all", `saquery -p`, `PathRecord dump`, ``},
	{"sa-mcmr", `saquery MCMR`, `MCMember Record dump`, `ERROR`},
	{"sa-mcg", `saquery -g`, `0xff12401bffff0000|ff12:401b:ffff`, ``},
	{"sa-mcm", `saquery -m {BLID}`, `PortGid`, ``},
	{"sa-lftr", `saquery LFTR {W}`, `LFT Record dump`, ``},
	{"sa-mftr", `saquery MFTR {W}`, ``, `ERROR`},
	{"sa-gir", `saquery GIR {M}`, `GUIDInfo Record dump`, ``},
	{"sa-swi", `saquery SWIR {W}`, `(?i)SwitchInfo`, ``},
	{"sa-smir", `saquery SMIR`, `SMInfo`, ``},
	{"ibdiagnet", ibdiagnet, `STAGE`, `-E-`},
	{"ibdmchk", `ibdmchk -h`, ``, ``},
}

// verdict is the outcome of a check.
type verdict struct {
	SM, Name string
	Pass     bool
	Took     time.Duration
	Output   string `json:"-"`
}

// ibdiagnet runs the tool without its stage of port counters, which is not about the
// manager and gives an adapter little time on a busy machine.  It runs again if it finds
// an error: where answers come late it takes one for that of its next question, and
// then sees a switch twice.
const ibdiagnet = `ibdiagnet -o dg -skip pm > dg.log && ! grep -qe -E- dg.log && cat dg.log || ibdiagnet -o dg -skip pm`

// conformanceFabric is the subnet of the checks: 16 hosts, 4 leaves, 2 spines.
const conformanceFabric = "ft2-16"

// conformance runs the checks against each manager.
func conformance(t *tools, o options, dir, only string) ([]verdict, error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	var all []verdict
	for _, sm := range o.sms {
		l, err := conform(t, o.sim, sm, re)
		all = append(all, l...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", sm, err)
		}
		pass := 0
		for _, v := range l {
			word := "FAIL"
			if v.Pass {
				pass++
				word = "pass"
			}
			fmt.Fprintf(out, "%s %-8s %-18s %7.2f s\n", word, sm, v.Name, v.Took.Seconds())
			if dir != "" {
				if err := os.MkdirAll(filepath.Join(dir, sm), 0o755); err != nil {
					return all, err
				}
				if err := os.WriteFile(filepath.Join(dir, sm, v.Name), []byte(v.Output), 0o644); err != nil {
					return all, err
				}
			}
		}
		fmt.Fprintf(out, "%s: %d of %d checks pass\n", sm, pass, len(l))
	}
	return all, nil
}

var (
	baseLID  = regexp.MustCompile(`Base lid: (\d+)`)
	smLID    = regexp.MustCompile(`SM lid: (\d+)`)
	portGUID = regexp.MustCompile(`Port GUID: 0x(\w+)`)
	anyLID   = regexp.MustCompile(`lid (\d+)`)
	nodePort = regexp.MustCompile(`PortGuid:\.*(?:0x)?(\w+)`)
	word     = regexp.MustCompile(`\{(\w+)\}`)
)

func conform(t *tools, sim, sm string, only *regexp.Regexp) ([]verdict, error) {
	r, m, err := t.managed(sim, conformanceFabric, sm, 5, false)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	time.Sleep(300 * time.Millisecond) // opensm says it is up before its SA answers
	work := filepath.Join(r.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	tool := func(host, command string, limit time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		c := exec.CommandContext(ctx, "sh", "-c", command)
		c.Dir = work
		env, err := r.env(host, true)
		if err != nil {
			return "", err
		}
		c.Env = append(env, "TMPDIR="+work)
		c.WaitDelay = time.Second
		b, err := c.CombinedOutput()
		if ctx.Err() != nil {
			err = errors.New("it does not end")
		}
		return string(b), err
	}
	first := func(re *regexp.Regexp, s string) string {
		if m := re.FindStringSubmatch(s); m != nil {
			return m[1]
		}
		return "0"
	}
	gid := func(hex string) string {
		hex = fmt.Sprintf("%016s", hex)
		return "fe80::" + hex[:4] + ":" + hex[4:8] + ":" + hex[8:12] + ":" + hex[12:]
	}
	v := map[string]string{"smhost": "H-00001", "BLID": "0xC000"}
	o, err := tool("H-00002", "ibstat", 20*time.Second)
	if err != nil {
		return nil, fmt.Errorf("ibstat: %w: %s", err, o)
	}
	v["S"], v["M"], v["GID"] = first(baseLID, o), first(smLID, o), gid(first(portGUID, o))
	for key, host := range map[string]string{"P": "H-00003", "Q": "H-00004"} {
		o, _ = tool(host, "ibstat", 20*time.Second)
		v[key] = first(baseLID, o)
	}
	o, _ = tool("H-00002", "ibswitches", 20*time.Second)
	v["W"] = first(anyLID, o)
	o, _ = tool("H-00002", "smpquery nodeinfo "+v["M"], 20*time.Second)
	v["MGID"] = gid(first(nodePort, o))
	f, err := fabricByName(conformanceFabric)
	if err != nil {
		return nil, err
	}
	v["N"] = fmt.Sprint(len(f.Nodes))
	for i, s := range []string{"ibping", "ibsysstat"} {
		c := exec.Command(s, "-S")
		c.Dir = work
		if c.Env, err = r.env(fmt.Sprintf("H-%05d", 3+i), true); err != nil {
			return nil, err
		}
		if sim == "ibsim" {
			c.Env = append(c.Env, "SIM_SET_ISSM=1") // ibsim gives requests to such clients only
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	}
	var l []verdict
	for _, c := range checks {
		if !only.MatchString(c.name) {
			continue
		}
		begin := time.Now()
		pass, text := c.run(v, work, func(cmd string) (string, error) { return tool("H-00002", cmd, time.Minute) })
		l = append(l, verdict{sm, c.name, pass, time.Since(begin), text})
		select {
		case <-m.done:
			return l, fmt.Errorf("the manager ended during %s", c.name)
		default:
		}
	}
	return l, nil
}

// run runs a check in a folder, with the values of its words.
func (c *check) run(values map[string]string, work string, tool func(command string) (string, error)) (pass bool, text string) {
	cmd := word.ReplaceAllStringFunc(c.command, func(w string) string { return values[w[1:len(w)-1]] })
	o, err := tool(cmd)
	pass = err == nil && (c.must == "" || regexp.MustCompile("(?m)"+c.must).MatchString(o)) &&
		(c.not == "" || !regexp.MustCompile("(?m)"+c.not).MatchString(o))
	text = fmt.Sprintf("$ %s\n%s\n", cmd, o)
	if err != nil {
		text += err.Error() + "\n"
	}
	log := filepath.Join(work, "osmtest.log")
	if b, err := os.ReadFile(log); err == nil && strings.HasPrefix(c.name, "osmtest") {
		text += string(tail(b, 1<<20))
		os.Remove(log)
	}
	return pass, text
}
