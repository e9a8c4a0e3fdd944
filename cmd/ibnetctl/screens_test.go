package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// cluster is a host of everything that a screen has to show: a link that is
// right, one that waits, one that is clamped, a child, an Ethernet port, a spare
// port, two subnet managers, mistakes.
func cluster() *api.Description {
	port := func(dev string, state, phys, rate string, lid, sm uint16, links []string, why, next string) link.PortStatus {
		return link.PortStatus{IBDevice: dev, Port: 1, LinkLayer: "InfiniBand", State: state, PhysState: phys, Rate: rate, LID: lid, SMLID: sm,
			PortGUID: "0x0002c903000abcde", NodeGUID: "0x0002c903000abcdd", SubnetPrefix: "fe80:0000:0000:0000",
			PKeys: []string{"0xffff", "0x8001"}, Links: links,
			Reason: link.Reason{Text: why, Next: next}}
	}
	waits := "port mlx5_1/1 is Initializing: no subnet manager has answered (SM LID 0)"
	start := "start a subnet manager on one node of this fabric: ibnetctl sm start, or systemctl start opensm"
	manager := link.Port{Manager: link.Manager{Ours: true, Builtin: true, Unit: "/etc/systemd/network/10-ib.ibnetwork"}}
	group := link.Reason{Code: link.CodeMTUGroup, Text: "wanted 4092, the fabric's broadcast group allows 2044 (group MTU 2048; the " +
		"subnet manager sets it)", Next: manager.MTUStep(0xffff)}
	return &api.Description{Schema: api.DescriptionSchema, Source: "ibnetworkd", Online: "partial",
		Ports: []link.PortStatus{
			port("mlx5_0", "Active", "LinkUp", "100 Gb/sec (4X EDR)", 3, 1, []string{"ibp3s0", "storage"}, "", ""),
			port("mlx5_1", "Initializing", "LinkUp", "100 Gb/sec (4X EDR)", 0, 0, []string{"ibp4s0"}, waits, start),
			{IBDevice: "mlx5_2", Port: 1, LinkLayer: "Ethernet", State: "Active", PhysState: "LinkUp", Rate: "100 Gb/sec (4X EDR)",
				PortGUID: "0x0000000000000000", NodeGUID: "0x0002c903000abcdd", Links: []string{"enp8s0f0np0"}},
			port("mlx5_3", "Down", "Polling", "10 Gb/sec (4X SDR)", 0, 0, nil,
				"port mlx5_3/1 is Down and Polling: no cable, or nothing answers at its other end", "plug both ends of the cable"),
		},
		Links: []link.Status{
			{Name: "ibp3s0", Ifindex: 4, Kind: "ipoib", IBDevice: "mlx5_0", Port: 1, PKey: "0xffff", Oper: units.OperRoutable,
				State: link.StateConfigured, Unit: "/etc/systemd/network/10-ib.ibnetwork", Required: true, Online: true,
				HWAddr: "80:00:00:02:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de", Addresses: []string{"10.0.0.1/24", "fe80::202:c903:a:bcde/64"},
				Reasons: []link.Reason{group},
				Attributes: []link.Attribute{{Name: "Mode", Wanted: "datagram", Actual: "datagram"},
					{Name: "MTUBytes", Wanted: "4092", Actual: "2044", Why: group}, {Name: "Address", Wanted: "10.0.0.1/24", Actual: "10.0.0.1/24"}}},
			{Name: "storage", Ifindex: 9, Kind: "ipoib", IBDevice: "mlx5_0", Port: 1, PKey: "0x8001", Parent: "ibp3s0", MadeByUs: true,
				Oper: units.OperNoCarrier, State: link.StateConfiguring, Unit: "/etc/systemd/network/41-storage.ibnetwork", Required: true,
				Reasons: []link.Reason{{Code: link.CodeJoin, Text: "port mlx5_0/1 is Active and has P_Key 0x8001, but the broadcast group of " +
					"partition 0x0001 is not joined: the subnet manager has no such group", Next: "ibnetctl sm status mlx5_0/1"}},
				Pending: []string{"ip address add 10.1.0.1/24 dev storage"}},
			{Name: "ibp4s0", Ifindex: 5, Kind: "ipoib", IBDevice: "mlx5_1", Port: 1, PKey: "0xffff", Oper: units.OperNoCarrier,
				State: link.StatePending, Unit: "/etc/systemd/network/10-ib.ibnetwork", Required: true,
				Reasons: []link.Reason{{Text: waits, Next: start}}},
			{Name: "enp8s0f0np0", Ifindex: 6, Kind: "", IBDevice: "mlx5_2", Port: 1, Oper: units.OperRoutable, State: link.StateUnmanaged},
		},
		SubnetManagers: []smctl.Status{
			{IBDevice: "mlx5_0", Port: 1, PortGUID: "0x0002c903000abcde", Manage: "auto", Engine: "builtin", Phase: "master",
				WorkerState: "active", Worker: "ibnetsm@0x0002c903000abcde.service", Starts: 1,
				Reason: "the subnet manager of this host serves the port", Unit: "/etc/systemd/network/10-ib.ibnetwork"},
			{IBDevice: "mlx5_1", Port: 1, PortGUID: "0x0002c903000abcdf", Manage: "auto", Engine: "builtin", Phase: "backing-off",
				WorkerState: "failed", Worker: "ibnetsm@0x0002c903000abcdf.service", Starts: 7,
				Reason: "ibnetsm@0x0002c903000abcdf.service failed (exit status 1); attempt 8 in 40s", Unit: "/etc/systemd/network/10-ib.ibnetwork"},
		},
		Problems: []string{`/etc/systemd/network/10-ib.ibnetwork:4:6: warning: [IPoIB] Mode=: "conected" is not one of auto, datagram, connected, did you mean connected?; the assignment is ignored`},
	}
}

// clusterInput is the host of cluster as diagnose gets it.
func clusterInput(t *testing.T) diagnose.Input {
	d := cluster()
	port := func(name string, state ib.PortState, phys ib.PhysState, lid ib.LID, keys ...ib.PKey) link.Device {
		return link.Device{Name: name, NodeGUID: 0x0002c903000abcdd, Driver: "mlx5_core", Ports: []link.Port{{Num: 1, GUID: 0x0002c903000abcde,
			Layer: ib.LinkLayerInfiniBand, State: state, Phys: phys, Rate: "100 Gb/sec (4X EDR)", LID: lid, SMLID: min(lid, 1), PKeys: keys}}}
	}
	ipoib := func(name string, index int, dev string, flags uint32, key ib.PKey) link.Link {
		return link.Link{Name: name, Index: index, Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: flags, IBDevice: dev, Port: 1,
			IPoIB: &link.IPoIB{PKey: key}, Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}}
	}
	const up = link.FlagUp | link.FlagLowerUp
	unit, problems := units.VerifyFile("/etc/systemd/network/10-ib.ibnetwork", []byte("[Match]\nType=infiniband\n[IPoIB]\nMode=conected\n"))
	if len(problems) == 0 {
		t.Fatal("no problem in the unit")
	}
	bond := link.Link{Name: "ipbond", Index: 11, Type: link.ARPHRDInfiniBand, Kind: "bond", Flags: up, Bond: &link.Bond{Active: 4},
		Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.3.0.1/24")}}}
	bonded := link.Status{Name: "ipbond", Ifindex: 11, Kind: "bond", Unit: "/etc/systemd/network/20-ipbond.ibnetwork",
		State: link.StateConfigured, Attributes: []link.Attribute{{Name: "ActiveSlave", Actual: "ibp3s0"},
			{Name: "Backup", Wanted: "ibp4s0 ready", Actual: "ibp4s0 not ready", Why: link.Reason{Code: link.CodeFailover,
				Text: "a failover of ipbond to ibp4s0 would fail: " + d.Links[2].Reasons[0].Text, Next: d.Links[2].Reasons[0].Next}},
			{Name: "Switches", Wanted: "two", Actual: "one", Why: link.Reason{Code: link.CodeSameSwitch,
				Text: "all slaves of ipbond are on one switch, leaf1 0x0002c90200409c10 (ibp3s0 on port 3, ibp4s0 on port 4): ipbond fails with it",
				Next: "cable one of them to another switch"}}}}
	return diagnose.Input{
		Snapshot: &link.Snapshot{Schema: link.SnapshotSchema,
			Devices: []link.Device{port("mlx5_0", ib.PortActive, ib.PhysLinkUp, 3, 0xffff, 1), port("mlx5_1", ib.PortInit, ib.PhysLinkUp, 0),
				port("mlx5_3", ib.PortDown, ib.PhysPolling, 0), port("mlx5_4", ib.PortActive, ib.PhysLinkUp, 7, 0xffff)},
			Links: []link.Link{ipoib("ibp3s0", 4, "mlx5_0", up, 0xffff), ipoib("storage", 9, "mlx5_0", up, 0x8001),
				ipoib("ibp4s0", 5, "mlx5_1", link.FlagUp, 0xffff), ipoib("ibp9s0", 10, "mlx5_4", 0, 0xffff), bond}},
		Report: link.Report{Links: append(d.Links, bonded), Ports: d.Ports}, SMs: d.SubnetManagers,
		Units: &units.Set{Units: []*units.Unit{unit}, Problems: problems},
		Asked: map[string]diagnose.Asked{"mlx5_0/1": {SA: true,
			SM: &smctl.Master{GUID: "0x0002c903000abcde", LID: 3, Priority: 5, State: "Master", Node: "head HCA-1"}},
			"mlx5_4/1": {}},
	}
}

// counted is a /sys with counters of a port and a link.
func counted(t *testing.T) sysfs.FS {
	root := t.TempDir()
	for n, v := range map[string]string{
		"infiniband/mlx5_0/ports/1/counters/port_rcv_packets": "1204", "infiniband/mlx5_0/ports/1/counters/port_rcv_data": "70312",
		"infiniband/mlx5_0/ports/1/counters/port_xmit_packets": "96", "infiniband/mlx5_0/ports/1/counters/port_xmit_data": "1728",
		"infiniband/mlx5_0/ports/1/counters/symbol_error": "17", "infiniband/mlx5_0/ports/1/counters/link_downed": "2",
		"infiniband/mlx5_0/ports/1/counters/port_rcv_errors": "0", "infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer": "12345",
		"net/ibp3s0/statistics/rx_packets": "1100", "net/ibp3s0/statistics/rx_bytes": "61600", "net/ibp3s0/statistics/tx_packets": "81",
		"net/ibp3s0/statistics/tx_bytes": "4212", "net/ibp3s0/statistics/tx_dropped": "4", "net/ibp3s0/statistics/rx_errors": "0",
	} {
		path := filepath.Join(root, "sys/class", n)
		testkit.WriteFile(t, path, v+"\n")
	}
	return sysfs.New(root)
}

// What each screen shows on a terminal of 80 and of 160 columns.
func TestScreens(t *testing.T) {
	d := cluster()
	screens := map[string]func(*app) error{
		"status":      func(a *app) error { return a.status(d, nil) },
		"status-link": func(a *app) error { return a.status(d, []string{"ibp3s0", "storage"}) },
		"status-port": func(a *app) error { return a.status(d, []string{"mlx5_0/1", "mlx5_3/1"}) },
		"status-missing": func(a *app) error {
			if err := a.status(d, []string{"ibp4s0", "ib9"}); exitCode(err) != exitNoSuch || !strings.HasPrefix(err.Error(), "ib9: ") {
				return fmt.Errorf("status ibp4s0 ib9: %w", err)
			}
			return nil
		},
		"status-stats": func(a *app) error {
			return a.stats(counted(t), d, []string{"ibp3s0", "storage", "mlx5_0/1"})
		},
		"list":    func(a *app) error { a.linkTable(d.Links); return nil },
		"ports":   func(a *app) error { a.portTable(d.Ports); return nil },
		"sm":      func(a *app) error { a.smTable(d.SubnetManagers); return nil },
		"sm-port": func(a *app) error { a.smDetail(answer.Manager{Status: d.SubnetManagers[1]}); return nil },
		"diagnose": func(a *app) error {
			if err := a.diagnose(clusterInput(t), ""); exitCode(err) != exitFailure {
				return fmt.Errorf("diagnose: %w", err)
			}
			return nil
		},
		"monitor": func(a *app) error {
			for _, e := range compare(cluster(), &api.Description{Links: d.Links[:1], Ports: d.Ports[1:2]}) {
				a.event(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), e)
			}
			return nil
		},
	}
	for name, show := range screens {
		onTerminals(t, name, func(width int) string {
			var b bytes.Buffer
			if err := show(&app{out: &b, err: &b, tty: [2]io.Writer{&b, &b}, width: width}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return b.String()
		})
	}
}

// onTerminals compares what is shown on a terminal of 80 and of 160 columns with the golden
// files.
func onTerminals(t *testing.T, name string, show func(width int) string) {
	t.Helper()
	for _, width := range []int{80, 160} {
		text := show(width)
		for l := range strings.Lines(text) {
			if n := visible(strings.TrimRight(l, "\n")); n > width && name != "monitor" {
				t.Errorf("%s at %d columns: a line of %d:\n%s", name, width, n, l)
			}
		}
		golden(t, fmt.Sprintf("testdata/screens/%s-%d.txt", name, width), text)
	}
}

// golden compares a text with a file, or writes it.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		testkit.WriteFile(t, file, text)
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != text {
		t.Errorf("%s differs (go test ./cmd/ibnetctl -run %s -update), -want +got: %v\n%s", file, t.Name(), err, cmp.Diff(string(want), text))
	}
}

// A line of the screen ends beside a command, not within it.
func TestStep(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"query it: sminfo -C mlx5_0 -P 1; if it answers, read its log, otherwise: ibnetctl sm start mlx5_0/1",
			"next: query it: sminfo -C mlx5_0 -P 1; if it\n      answers, read its log, otherwise:\n      ibnetctl sm start mlx5_0/1\n"},
		{"on this host: echo 0000:3b:00.0 > /sys/bus/pci/drivers/mlx5_core/unbind; then wait",
			"next: on this host:\n      echo 0000:3b:00.0 > /sys/bus/pci/drivers/mlx5_core/unbind;\n      then wait\n"},
		{"start one: ibnetctl sm start, or systemctl start opensm", "next: start one: ibnetctl sm start, or\n      systemctl start opensm\n"},
		{"sudo modprobe ib_umad   (mlx4_ib for ConnectX-2 and -3)", "next: sudo modprobe ib_umad (mlx4_ib for\n      ConnectX-2 and -3)\n"},
	} {
		var b bytes.Buffer
		if (&app{out: &b, width: 46}).step("next: ", 6, tc.text); b.String() != tc.want {
			t.Errorf("%q:\n%s\nwant\n%s", tc.text, b.String(), tc.want)
		}
		b.Reset()
		if (&app{out: &b}).step("next: ", 6, tc.text); b.String() != "next: "+tc.text+"\n" {
			t.Errorf("not on a terminal: %q", b.String())
		}
	}
}

// What plan and verify print fits the terminal, so that the pager cuts nothing and ends
// by itself, and a plan stays a script.
func TestPlanAndVerifyFitTheTerminal(t *testing.T) {
	d := cluster()
	notices := []link.Notice{{Reason: link.Reason{
		Text: "/etc/systemd/network/40-spare.ibnetwork: matches no link of this host, and no port by itself",
		Next: "compare its [Match] with ibnetctl list and ibnetctl ports; ibnetctl diagnose LINK names the first key that does " +
			"not match"}}}
	plan := strings.Join([]string{"ip link set ibp3s0 mtu 2044",
		"ip route replace 10.3.0.0/16 proto static metric 100 " +
			"nexthop via 10.0.0.9 dev ibp3s0 weight 1 nexthop via 10.1.0.9 dev storage weight 1",
		"#   besides: mlx5_0/1 goes down and up", "# waiting: ibp4s0: " + d.Ports[1].Reason.Text,
		"#   then: ip address add 10.1.0.1/24 dev storage",
		"#   then: ip route replace 10.4.0.0/16 proto static metric 100 nexthop via 10.0.0.9 dev ibp3s0 weight 1 onlink",
		"#   next: " + d.Ports[1].Reason.Next, `sysctl 'net.ipv4.conf.a b=1' "net.ipv4.conf.c d=1" net.ipv4.conf.ibp3s0.arp_ignore=1 -q -w`,
		"systemctl restart ibnetsm@0x0002c903000abcde.service   " +
			"# the settings have changed, which the program cannot read while it runs"}, "\n") + "\n"
	set, err := unitsIn(writeUnit(t, "[Match]\nName=ib0\n[Link]\nMTUBytes=12\n[IPoIB]\nMode=conected\n"))
	testkit.NoError(t, err)
	for i := range set.Problems {
		set.Problems[i].Pos.File = "/etc/systemd/network/10-ib.ibnetwork"
	}
	onTerminals(t, "plan", func(width int) string {
		var b bytes.Buffer
		a := &app{out: &b, width: width}
		for _, n := range notices {
			a.script("", "# "+n.Text+"\n#   next: "+n.Next)
		}
		a.script("", plan)
		return b.String()
	})
	onTerminals(t, "verify", func(width int) string {
		var b bytes.Buffer
		a := &app{out: &b, width: width}
		a.printProblems(set.Problems)
		a.printNotices("note: ", notices)
		return b.String()
	})
	var b bytes.Buffer
	if (&app{out: &b}).script("", plan); b.String() != plan {
		t.Errorf("not on a terminal: %s", b.String())
	}
	// Of one style each line has it, for less ends a colour with the line.
	b.Reset()
	(&app{out: &b, width: 46, colour: true}).say("", 2, "\x1b["+bad+"m"+notices[0].Text+"\x1b[0m")
	for l := range strings.Lines(b.String()) {
		if !strings.Contains(l, "\x1b["+bad+"m") || !strings.HasSuffix(l, "\x1b[0m\n") {
			t.Errorf("%q", l)
		}
	}
}

// A script gets everything in one line each, whatever the terminal.
func TestScreensUnwrapped(t *testing.T) {
	var b bytes.Buffer
	(&app{out: &b}).portTable(cluster().Ports)
	if s := b.String(); strings.Count(s, "\n") != 5 || !strings.Contains(s, "PORT GUID") || !strings.Contains(s, "(SM LID 0)\n") {
		t.Errorf("%s", s)
	}
}

// What each command shows of the hosts in testdata/reports, which scenarios write:
// go test ./lab/scenario -run 'ReportOfAHost|CardOfTwoKinds' -rewrite.
func TestReports(t *testing.T) {
	archives, err := filepath.Glob("testdata/reports/*.tar.gz")
	if err != nil || len(archives) < 3 {
		t.Fatalf("reports: %q, %v", archives, err)
	}
	for _, archive := range archives {
		dir := strings.TrimSuffix(archive, ".tar.gz")
		for _, command := range []string{"status", "list", "ports", "diagnose", "plan"} {
			var b bytes.Buffer
			code := run(t.Context(), []string{"--report", archive, command}, strings.NewReader(""), &b, &b)
			fmt.Fprintf(&b, "exit status %d\n", code)
			golden(t, filepath.Join(dir, command+".txt"), b.String())
		}
	}
}
