package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
)

var rewrite = flag.Bool("rewrite", false, "write the reports of hosts into cmd/ibnetctl/testdata/reports")

// mostReport bounds a report that is kept in the tree, in bytes.
const mostReport = 64 << 10

// reports is t.Parallel for a scenario that gives reports of its hosts by giveReport:
// with -rewrite it copies them to where the tests of ibnetctl read them.
func reports(t *testing.T) {
	if lab.InGuest() || !*rewrite {
		t.Parallel()
		return
	}
	logs := t.TempDir()
	t.Setenv("IBNET_LAB_KEEP", "1")
	t.Setenv("IBNET_LAB_LOGS", logs)
	t.Cleanup(func() {
		files, _ := filepath.Glob(logs + "/*/out/*.tar.gz")
		if len(files) == 0 {
			t.Error("no report was written")
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile("../../cmd/ibnetctl/testdata/reports/"+filepath.Base(f), text, 0o644)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// giveReport writes a report of the guest, which is one that the tree could keep.
func giveReport(g *lab.G, name string) {
	g.Helper()
	file := "/tmp/" + name + ".tar.gz"
	g.Exec("ibnetctl", "report", file)
	text := g.Read(file)
	if len(text) > mostReport {
		g.Errorf("the report %s has %d bytes, more than %d", name, len(text), mostReport)
	}
	g.Artifact(name+".tar.gz", []byte(text))
}

// The archive of a host shows elsewhere what the host itself shows, without its
// addresses and GUIDs.
func TestReportOfAHost(t *testing.T) {
	reports(t)
	lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl, ibnetsm}},
		func(g *lab.G) {
			g.SM(lab.SM{})
			g.Write(unitDir+"10-ib.ibnetwork", "[Match]\nName=ib0\n\n[IPoIB]\nMode=connected\n\n[Network]\nAddress=10.77.0.1/24\n")
			d := startDaemon(g)
			d.configured("ib0", 20*time.Second)
			guid := strings.TrimSpace(strings.ReplaceAll(g.Read("/sys/class/infiniband/swib0/node_guid"), ":", ""))
			now := map[string]string{}
			commands := []string{"status", "list", "ports", "plan"}
			for _, c := range commands {
				now[c] = ofTheLinks(g.Exec("ibnetctl", c))
			}
			g.Exec("ibnetctl", "report", "--plain", "/tmp/plain.tar.gz")
			for _, c := range commands {
				if got := ofTheLinks(g.Exec("ibnetctl", "--report", "/tmp/plain.tar.gz", c)); got != now[c] {
					g.Errorf("%s of the report:\n%s\nof the host:\n%s", c, got, now[c])
				}
			}
			g.Exec("ibnetctl", "report", "/tmp/r.tar.gz")
			g.Exec("tar", "-C", "/tmp", "-xzf", "/tmp/r.tar.gz")
			dir := strings.TrimSpace(g.Exec("sh", "-c", "ls -d /tmp/ibnetwork-report-*"))
			found := g.Exec("sh", "-c", "grep -rlE '10[.]77[.]0[.]1|"+guid[8:]+"|"+guid[8:12]+":"+guid[12:]+"' "+dir+" || true")
			if strings.TrimSpace(found) != "" {
				g.Errorf("the address or the GUID %s of the host is in\n%s", guid, found)
			}
			text := g.Read(dir + "/report.txt")
			for _, want := range []string{"capture.json", "daemon.json", "rdma.json", "dcb.json", "drivers.json", "journal.txt",
				"system/sys/class/infiniband/swib0/ports/1/rate", "system/sys/class/net/ib0/mode"} {
				if !strings.Contains(text, " "+want+"\n") {
					g.Errorf("report.txt lists no %s:\n%s", want, text)
				}
			}
			for _, c := range commands {
				if got := ofTheLinks(g.Exec("ibnetctl", "--report", dir, c)); strings.Count(got, "\n") != strings.Count(now[c], "\n") {
					g.Errorf("%s of the hidden report:\n%s\nof the host:\n%s", c, got, now[c])
				}
			}
			if out, err := g.Try("ibnetctl", "--report", dir, "reload"); err == nil || !strings.Contains(out, "does not work on a report") {
				g.Errorf("reload of a report: %v\n%s", err, out)
			}
			giveReport(g, "connected")
			// The same host with a mistake in a unit, a partition that the subnet
			// manager does not have, and a cable that was pulled.
			g.Ctl("link h1/1 down")
			g.Write(unitDir+"20-pulled.ibnetwork", "[Match]\nName=ib1\n\n[IPoIB]\nMode=conected\n\n[Network]\nAddress=10.78.0.1/24\n")
			g.Write(unitDir+"10-ib.ibnetwork", g.Read(unitDir+"10-ib.ibnetwork")+"\n[Partition]\nPartitionKey=0x8009\nName=absent\n")
			d.p.Signal(syscall.SIGHUP)
			g.Wait("ib1 without a cable, absent without a P_Key", 20*time.Second, func() bool {
				return d.status("ib1").Reason().Text != "" && d.status("absent").Oper == "no-carrier"
			})
			giveReport(g, "trouble")
		})
}

// ofTheLinks is what a command prints without the line that says why the daemon
// was not asked about subnet managers.
func ofTheLinks(out string) string {
	first, rest, _ := strings.Cut(out, "\n")
	if strings.HasPrefix(first, "# subnet managers: not queried") {
		return rest
	}
	return out
}
