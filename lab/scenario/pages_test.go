package scenario

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

const pagesDir = "/lab-pages/"

// Commands that cannot run in a guest, and those that run but whose exit status is not
// 0. A command of a page that fails and is not here is a mistake of the page.
var pageExceptions = []struct {
	page, command string
	runs          bool
	why           string
}{
	{"", "mstconfig", false, "for a card with firmware"},
	{"roce", "rping ", false, "is for two hosts: TestSoftRoCE and TestRPingBetweenCards run it between two"},
	{"cluster", "apt install", false, "has no package in the guest: TestPackage"},
	{"cluster", "drain", false, "needs a switch: TestWhatIfScreens, TestDrainScreens and TestDrainAfterTakeover"},
	{"initramfs", "initramfs -", false, "needs initramfs-tools and the modules of a kernel"},
	{"initramfs", "lsinit", false, "needs an initramfs"},
	{"initramfs", "dracut --", false, "needs dracut and the modules of a kernel"},
	{"simulator", "", false, "builds programs from the source: TestSimulatorPage"},
	{"", "ibnetctl diagnose", true, "its exit status is its answer"},
	{"", "ibnetctl verify", true, "its exit status is its answer"},
	{"", "-H node17,node18 diagnose", true, "its exit status is its answer"},
	{"", "sm topology --bad", true, "its exit status is its answer"},
	{"", "import --check", true, "its exit status is its answer"},
	{"cluster", "plan --hosts", true, "its exit status is its answer"},
	{"", "ibnetctl monitor", true, "does not end: it is ended after a second"},
	{"", "FILE...", true, "stands for any files"},
}

// Every page of docs/tasks has steps that are found, and no two beside each other
// are taken for one.
func TestPageSteps(t *testing.T) {
	if lab.InGuest() {
		return
	}
	steps := pageSteps("a `ping -c 1 x` b\n\n```ini\n# /etc/a       # /etc/b\n[A]            [B]\nx=1\n```\n\n```sh\n$ cat " +
		"f\nout\n```\n   ```\n   ibnetctl status\n   ```\n")
	want := "[{1  ping -c 1 x inline} {4 /etc/a [A]\nx=1\n ini} {4 /etc/b [B]\n ini} {10  cat f sh} {14  ibnetctl status sh}]"
	if got := fmt.Sprint(steps); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	pages, _ := filepath.Glob("../../docs/tasks/*.md")
	if len(pages) < 9 {
		t.Fatalf("pages: %q", pages)
	}
	for _, p := range pages {
		text := testkit.ReadFile(t, p)
		if n := len(pageSteps(string(text))); n < 2 && !strings.Contains(p, "simulator") {
			t.Errorf("%s: %d steps", p, n)
		}
	}
}

// The pages of docs/tasks, done as they stand, one after the other, by what they
// say: files are written where they say, commands are typed. Names of devices and
// GUIDs are those of the guest.
func TestTaskPages(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{Cabled: true}, nil)
	c.Files["/etc/NetworkManager/conf.d/lab.conf"] = "[main]\nno-auto-default=*\n[keyfile]\nunmanaged-devices=interface-name:vec*\n"
	c.Files["/etc/sysconfig/network-scripts/ifcfg-ib0"] = "DEVICE=ib0\nTYPE=InfiniBand\nONBOOT=yes\nBOOTPROTO=none\n" +
		"CONNECTED_MODE=yes\nMTU=65520\nIPADDR=10.0.0.1\nPREFIX=24\n"
	c.Files["/etc/netplan/10-fabric.yaml"] = "network:\n  version: 2\n  ethernets:\n    ib0:\n      infiniband-mode: connected\n     " +
		" addresses: [10.0.0.1/24]\n"
	// The other hosts of the cluster are this one.
	c.Files["/usr/local/bin/ssh"] = "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n"
	// MPI is not in the guest: what it would get is printed.
	c.Files["/usr/local/bin/mpirun"] = "#!/bin/sh\nenv | grep -e NCCL -e UCX\n"
	c.Files["/usr/local/bin/sudo"] = "#!/bin/sh\nexec \"$@\"\n"
	// The server of the page about DHCP is the other machine, whose link is ib1.
	c.Files["/etc/systemd/system/dnsmasq.service"] = "[Service]\nExecStart=/bin/sh -c 'sed s/=ib0/=ib1/ /etc/dnsmasq.d/ib0.conf > " +
		"/run/dnsmasq.conf; exec ip netns exec other dnsmasq -k -C /run/dnsmasq.conf --user=root --dhcp-leasefile=/run/leases'\n"
	c.Files["/etc/initramfs-tools/modules"], c.Files["/etc/dracut.conf.d/README"] = "", ""
	if !lab.InGuest() {
		c.Bins = append(c.Bins, debs(t, dnsmasqPackages...)...)
		pages, _ := filepath.Glob("../../docs/tasks/*.md")
		for _, p := range pages {
			text := testkit.ReadFile(t, p)
			c.Files[pagesDir+path.Base(p)] = string(text)
		}
	}
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		unpack(g)
		// The other machine: a host of its own with the second adapter.
		other := g.Host("other")
		other.Take("ib1", "192.168.151.2/24")
		g.Sh("ip link add enp8s0f0np0 type veth peer name far0; ip link set far0 up; ip link add eth0 type veth peer name far1; ip link " +
			"set far1 up")
		names, _ := filepath.Glob(pagesDir + "*.md")
		// Two machines first: it is what the others go on from.
		slices.SortStableFunc(names, func(a, b string) int {
			return strings.Compare(strings.Replace(a, "two-machines", "", 1), strings.Replace(b, "two-machines", "", 1))
		})
		for _, n := range names {
			name := strings.TrimSuffix(path.Base(n), ".md")
			g.Run(name, func(g *lab.G) {
				steps := pageSteps(g.Read(n))
				begin := time.Now()
				beforePage(g, name)
				for i, s := range steps {
					doStep(g, name, i, s)
				}
				g.Logf("%d steps in %v", len(steps), time.Since(begin).Round(time.Millisecond))
				afterPage(g, name)
			})
		}
	})
}

// here puts the guest's names in place of a page's.
func here(g *lab.G, s string) string {
	a, b := g.PortGUID("swib0", 1), g.PortGUID("swib1", 1)
	var colons []string
	for i := 2; i < len(a); i += 2 {
		colons = append(colons, a[i:i+2])
	}
	s = strings.ReplaceAll(s, "00:02:c9:03:00:0a:bc:de", strings.Join(colons, ":"))
	s = strings.NewReplacer("mlx5_0/1", "swib0/1", "mlx4_0/1", "swib0/1", "mlx5_0", "swib0", "0x0002c903000abcde", a, "0x0002c903000abcdf", b,
		"ping 192", "ping -c 2 -w 20 192", "<LINK>", "ib0").Replace(s)
	for _, w := range [][2]string{{"LINK", "ib0"}, {"PORT", "swib0/1"}, {"GUID", a}, {"NAME", "10-ib0"},
		{"FILE", "/tmp/10-ib0.ibnetwork"}, {"DIR", "/etc/systemd/network"}} {
		s = regexp.MustCompile(`\b`+w[0]+`\b`).ReplaceAllString(s, w[1])
	}
	return s
}

func doStep(g *lab.G, page string, i int, s pageStep) {
	at := fmt.Sprintf("%s.md:%d", page, s.line)
	if s.lang == "ini" {
		file, text := s.file, here(g, s.text)
		switch {
		case file == "" && strings.Contains(text, "[keyfile]"), file == "" && strings.Contains(text, "Unmanaged="),
			strings.Contains(text, "Path=pci-"):
			return // of another program, or for a card of another kind
		case file == "" && !strings.Contains(text, "[Match]"):
			file = fmt.Sprintf("%s10-ib0.ibnetwork.d/%s-%d.conf", unitDir, page, i)
		case file == "" && strings.Contains(text, "\nType=infiniband\n"):
			file = unitDir + "10-ib0.ibnetwork"
		case file == "":
			m := regexp.MustCompile(`(?m)^Name=(\S+)`).FindStringSubmatch(text)
			if m == nil {
				g.Write("/tmp/unit.ibnetwork", text)
				if out, err := g.Try("ibnetctl", "verify", "/tmp/unit.ibnetwork"); err != nil {
					g.Errorf("%s: %v\n%s", at, err, out)
				}
				return
			}
			file = unitDir + map[bool]string{true: "10-", false: "20-"}[m[1] == "ib0"] + m[1] + ".ibnetwork"
		}
		g.Exec("mkdir", "-p", path.Dir(file))
		// A fragment that is for another host or another engine is checked only.
		if strings.HasSuffix(file, ".conf") && strings.HasPrefix(file, unitDir) && page != "two-machines" && page != "pkeys" {
			g.Write("/tmp/fragment.conf", text)
			if out, err := g.Try("ibnetctl", "verify", "/tmp/fragment.conf"); err != nil && !strings.Contains(out, "PartitionsFile=") {
				g.Errorf("%s: %v\n%s", at, err, out)
			}
			return
		}
		g.Write(file, text)
		if strings.HasSuffix(file, ".ibnetwork") {
			if out, err := g.Try("ibnetctl", "verify", file); err != nil {
				g.Errorf("%s: %v\n%s", at, err, out)
			}
		}
		return
	}
	why, runs := "", true
	for _, e := range pageExceptions {
		if (e.page == "" || e.page == page) && strings.Contains(s.text, e.command) {
			why, runs = e.why, e.runs
		}
	}
	cmd := here(g, s.text)
	if !runs {
		g.Logf("%s: not run: %s (%s)", at, cmd, why)
		return
	}
	if strings.Contains(cmd, "monitor") {
		cmd = "timeout 1 " + cmd
	}
	if word := strings.Fields(cmd); s.lang == "inline" && slices.Contains([]string{"NAME", "sm"}, word[len(word)-1]) {
		return
	}
	g.Write("/tmp/10-ib0.ibnetwork", auto)
	if strings.HasPrefix(cmd, "ip -n job ") { // the step before has made the namespace
		g.Wait("the child in its namespace", 10*time.Second, func() bool { return g.Sh("ip -n job -br link show type ipoib") != "" })
	}
	out, err := g.Try("sh", "-c", "cd /tmp; export EDITOR=true; yes yes | timeout 60 bash -c '"+strings.ReplaceAll(cmd, "'", `'\''`)+"'")
	if err != nil && why == "" {
		g.Errorf("%s: %s: %v\n%s", at, cmd, err, out)
		return
	}
	g.Logf("%s: %s: %s", at, cmd, strings.TrimSpace(out))
}

// beforePage makes the host that a page begins with: the first page's has no unit,
// the others go on from what it made.
func beforePage(g *lab.G, page string) {
	if page == "two-machines" {
		// The modules of the guest's kernel are part of it; a distribution says so in a list.
		g.Sh("d=/lib/modules/$(uname -r); mkdir -p $d && touch $d/modules.order && echo kernel/drivers/infiniband/core/ib_umad.ko > " +
			"$d/modules.builtin && depmod")
		return
	}
	g.Sh("rm -rf %s*", unitDir)
	switch page {
	case "migrate":
	case "roce":
		// The card of the page.
		g.Sh("rdma link show | grep -q rxe_card || rdma link add rxe_card type rxe netdev enp8s0f0np0")
	case "beside-networkmanager":
		g.Exec("systemctl", "start", "NetworkManager")
		defer g.Exec("nmcli", "connection", "add", "type", "infiniband", "con-name", "10-ib0", "ifname", "ib7", "transport-mode", "datagram",
			"autoconnect", "no")
		g.WaitFor(20*time.Second, func() string {
			if out, err := g.Try("systemctl", "reload", "NetworkManager"); err != nil {
				return "NetworkManager does not reload yet: " + out
			}
			return ""
		})
	default:
		g.Write(unitDir+"10-ib0.ibnetwork", auto)
		g.Exec("ibnetctl", "reload")
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
	}
}

func afterPage(g *lab.G, page string) {
	switch page {
	case "two-machines":
		if out := g.Exec("ibnetctl", "status", "ib0"); !strings.Contains(out, "routable (configured)") {
			g.Errorf("after the page:\n%s", out)
		}
	case "pkeys":
		g.WaitFor(60*time.Second, func() string {
			if out := g.Exec("ibnetctl", "list"); !strings.Contains(out, "storage") {
				return "no link storage:\n" + out
			}
			return ""
		})
	case "dhcp":
		// That of the reservation, whose identifier the page says how to get.
		g.WaitFor(60*time.Second, func() string {
			if out := g.Exec("ibnetctl", "status", "ib0"); !strings.Contains(out, "192.168.151.17/24 by 192.168.151.2") {
				return "no lease:\n" + out
			}
			return ""
		})
		g.Logf("%s", g.Exec("ibnetctl", "status", "ib0"))
		g.Exec("systemctl", "stop", "dnsmasq")
	case "beside-networkmanager":
		g.Exec("systemctl", "stop", "NetworkManager")
	case "migrate":
		g.Read(unitDir + "10-ib0.ibnetwork")
	}
}
