package diagnose

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// good is a host on which everything is right; each case breaks one thing.
func good() Input {
	mac, _ := ib.ParseHWAddr("80:00:00:02:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de")
	return Input{
		Snapshot: &link.Snapshot{Schema: link.SnapshotSchema,
			Devices: []link.Device{{Name: "mlx5_0", NodeGUID: 0x0002c903000abcdd, Driver: "mlx5_core", Parent: "0000:3b:00.0", Ports: []link.Port{
				{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: 0x0002c903000abcde, LID: 3, SMLID: 1,
					PKeys: []ib.PKey{0xffff}, Rate: "100 Gb/sec (4X EDR)"}}}},
			Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagUp | link.FlagLowerUp,
				MTU: 2044, HWAddr: mac,
				IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1,
				Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}}},
		},
		Report: link.Report{
			Links: []link.Status{{Name: "ib0", Ifindex: 4, Unit: "/etc/systemd/network/10-ib0.ibnetwork", State: link.StateConfigured,
				IBDevice: "mlx5_0", Port: 1,
				Attributes: []link.Attribute{{Name: "Mode", Wanted: "datagram", Actual: "datagram"}, {Name: "MTUBytes", Actual: "2044"}}}},
			Ports: []link.PortStatus{{IBDevice: "mlx5_0", Port: 1, Unit: "/etc/systemd/network/10-ib0.ibnetwork"}},
		},
		Asked: map[string]Asked{"mlx5_0/1": {SA: true,
			SM: &smctl.Master{GUID: "0x0002c90300000001", LID: 1, Priority: 5, State: "Master", Node: "head HCA-1"}}},
	}
}

// An Active port is no answer: ok is reported only of a subnet manager that answered.
func TestSubnetManagerAnswers(t *testing.T) {
	master := good().Asked["mlx5_0/1"].SM
	standby := *master
	standby.State = "Standby"
	for _, tt := range []struct {
		name  string
		asked *Asked
		sm    *smctl.Status
		want  Result
		words string
	}{
		{"it answers", &Asked{SM: master, SA: true}, nil, OK,
			`the master answers: "head HCA-1", port GUID 0x0002c90300000001, LID 1, priority 5`},
		{"nobody answers", &Asked{}, nil, Fail, "LID 1 does not answer: existing connections continue, but no port can join a group"},
		{"nobody answers, the daemon waits", &Asked{}, &smctl.Status{Phase: "settling", Reason: "it counts as dead in 9s"}, Fail,
			"counts as dead"},
		{"nobody answers, none is managed", &Asked{}, &smctl.Status{Phase: "off", Reason: "no unit"}, Fail, "does not answer"},
		{"the daemon was answered some time ago", &Asked{}, &smctl.Status{Phase: "served", Master: master}, Fail, "does not answer"},
		{"its SA is mute", &Asked{SM: master}, nil, Fail, "subnet administrator does not"},
		{"it is no master", &Asked{SM: &standby, SA: true}, nil, Fail, "Standby, not master"},
		{"only root may query it", &Asked{Not: "only root may query it"}, nil, Warn, "was not queried (only root may query it)"},
		{"only root may ask, the daemon did", &Asked{Not: "only root may query it"}, &smctl.Status{Phase: "served", Master: master}, OK,
			"answered the daemon"},
		{"only root may ask, ours serves", &Asked{Not: "only root may query it"},
			&smctl.Status{Phase: "master", Worker: "ibnetsm@x.service"}, OK, "ibnetsm@x.service"},
		{"only root may ask, ours failed", &Asked{Not: "only root may query it"},
			&smctl.Status{Phase: "backing-off", Reason: "it failed"}, Fail, "it failed"},
		{"a captured system", nil, nil, Warn, "was not queried"},
	} {
		in := good()
		if in.Asked = nil; tt.asked != nil {
			in.Asked = map[string]Asked{"mlx5_0/1": *tt.asked}
		}
		if tt.sm != nil {
			tt.sm.IBDevice, tt.sm.Port = "mlx5_0", 1
			in.SMs = []smctl.Status{*tt.sm}
		}
		for _, k := range Run(in, "")[0].Checks {
			if k.Name == "subnet manager" && (k.Result != tt.want || !strings.Contains(k.Text, tt.words) || k.Result != OK && k.Next == "") {
				t.Errorf("%s: %+v, want %s %q", tt.name, k, tt.want, tt.words)
			}
		}
	}
}

// The next step has not been taken yet and works as printed: without the daemon, with a
// unit that already has [SubnetManager], with a subnet manager that was stopped by hand.
func TestNextStepOfManager(t *testing.T) {
	manages, none := "[SubnetManager]\nManage=auto\n", "[Network]\n"
	for _, tt := range []struct {
		name, unit string
		phase      smctl.Phase
		start      string
		want       string
	}{
		{"not managed", none, "off", "", "add [SubnetManager] Manage=auto to 10-ib0.ibnetwork (or, once: ibnetctl sm start mlx5_0/1)"},
		{"managed, stopped by hand", manages, "stopped", "", "ibnetctl sm start mlx5_0/1"},
		{"not managed, stopped by hand", none, "stopped", "", "ibnetctl sm start mlx5_0/1"},
		{"managed, failed", manages, "backing-off", "", "journalctl -u ibnetsm@x.service"},
		{"managed, another one was master", manages, "served", "", "ibnetctl sm status mlx5_0/1"},
		{"managed, not known", manages, "", "", "ibnetctl sm status mlx5_0/1"},
		{"managed, no daemon", manages, "", "systemctl start ibnetworkd", "systemctl start ibnetworkd"},
		{"not managed, no daemon", none, "", "systemctl start ibnetworkd", "systemctl start ibnetworkd; ibnetctl sm start mlx5_0/1"},
		{"managed, no daemon and no systemd", manages, "", "start ibnetworkd", "start ibnetworkd"},
		{"switched off, no daemon", "[SubnetManager]\nManage=no\n", "", "systemctl start ibnetworkd",
			"systemctl start ibnetworkd; ibnetctl sm start mlx5_0/1"},
	} {
		for _, state := range []ib.PortState{ib.PortActive, ib.PortInit} {
			in := good()
			in.Asked, in.StartDaemon = map[string]Asked{"mlx5_0/1": {}}, tt.start
			p := &in.Snapshot.Devices[0].Ports[0]
			if p.State = state; state == ib.PortInit {
				p.SMLID = 0
			}
			u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n"+tt.unit))
			in.Units = &units.Set{Units: []*units.Unit{u}}
			if tt.phase != "" {
				in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: tt.phase, Reason: "why", Worker: "ibnetsm@x.service"}}
			}
			found := false
			for _, c := range Run(in, "ib0") {
				for _, k := range c.Checks {
					if k.Name == "subnet manager" {
						found = true
						if k.Result != Fail || k.Next != tt.want {
							t.Errorf("%s, %v: %+v, want %q", tt.name, state, k, tt.want)
						}
					}
				}
			}
			if !found {
				t.Errorf("%s, %v: not checked", tt.name, state)
			}
		}
	}
}

// Without the daemon no unit is applied: every diagnosis reports it, and starting it is the
// next step of what waits for it.
func TestDaemonNotRunning(t *testing.T) {
	in := good()
	u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n"))
	in.Units = &units.Set{Units: []*units.Unit{u}}
	in.Snapshot.Links[0].Flags = 0
	for _, only := range []string{"", "ib0"} {
		for _, start := range []string{"", "systemctl start ibnetworkd"} {
			in.StartDaemon = start
			cs := Run(in, only)
			if said := cs[0].On == "host" && cs[0].Checks[0].Name == "daemon" && cs[0].Checks[0].Result == Warn; said != (start != "") {
				t.Errorf("%q: %+v", only, cs)
			}
			last := cs[len(cs)-1].Checks
			want := cmp.Or(start, "ibnetctl up ib0")
			if k := last[len(last)-1]; k.Name != "interface" || k.Next != want {
				t.Errorf("%q: %+v, want %q", only, k, want)
			}
		}
	}
	if cs := Run(in, "nosuch"); len(cs) > 0 {
		t.Errorf("a name that nothing has: %+v", cs)
	}
	in.Units = &units.Set{}
	if cs := Run(in, ""); cs[0].On == "host" {
		t.Errorf("a host without units: %+v", cs[0])
	}
}

// A [RoCE] section on an InfiniBand port is more often a mistake than a wrong port type.
func TestRoCEOnInfiniBand(t *testing.T) {
	in := good()
	u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[RoCE]\nDSCP=26\n"))
	in.Units = &units.Set{Units: []*units.Unit{u}}
	cs := Run(in, "ib0")
	if k := cs[0].Checks[1]; k.Code != codeLinkLayer || !strings.HasPrefix(k.Next, "remove [RoCE] from the unit; or, ") {
		t.Errorf("%+v", k)
	}
}

// A link that is to join a bond needs no address.
func TestBondThatIsRefusedNeedsNoAddress(t *testing.T) {
	in := good()
	in.Snapshot.Links[0].Addresses = nil
	in.Report.Links[0].Attributes = append(in.Report.Links[0].Attributes, link.Attribute{Name: "Bond", Wanted: "bond0",
		Why: link.Reason{Code: link.CodeUnsupported, Text: "the kernel has active-backup only", Next: "write Mode=active-backup"}})
	for _, k := range Run(in, "ib0")[0].Checks {
		if k.Name == "address" {
			t.Errorf("%+v", k)
		}
	}
}

func TestEveryBranch(t *testing.T) {
	port := func(in *Input) *link.Port { return &in.Snapshot.Devices[0].Ports[0] }
	l := func(in *Input) *link.Link { return &in.Snapshot.Links[0] }
	st := func(in *Input) *link.Status { return &in.Report.Links[0] }
	unit := func(text string) *units.Set {
		u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n"+text))
		return &units.Set{Units: []*units.Unit{u}}
	}
	tests := []struct {
		name  string
		spoil func(*Input)
		check string // that fails
		code  link.Code
	}{
		{"OK all right", func(*Input) {}, "", ""},
		{"bad core module missing", func(in *Input) { in.Snapshot.Devices, in.Missing = nil, []string{"ib_core"} }, "module", link.CodeNoModule},
		{"bad no device", func(in *Input) { in.Snapshot.Devices = nil }, "device", codeNoDevice},
		{"bad wrong link layer", func(in *Input) { port(in).Layer = ib.LinkLayerEthernet; in.Units = unit("[IPoIB]\nMode=auto\n") },
			"link layer", codeLinkLayer},
		{"bad wrong port type", func(in *Input) { in.Units = unit("[Port]\nType=eth\n") }, "link layer", codeLinkLayer},
		{"bad zero GUID", func(in *Input) { port(in).GUID, port(in).State, port(in).Phys = 0, ib.PortDown, ib.PhysPolling }, "guid",
			codeZeroGUID},
		{"bad polling", func(in *Input) { port(in).State, port(in).Phys = ib.PortDown, ib.PhysPolling }, "cable", link.CodeCable},
		{"bad disabled", func(in *Input) { port(in).State, port(in).Phys = ib.PortDown, ib.PhysDisabled }, "cable", link.CodePortDisabled},
		{"bad training", func(in *Input) { port(in).State, port(in).Phys = ib.PortDown, ib.PhysTraining }, "cable", link.CodeTraining},
		{"bad no subnet manager", func(in *Input) { port(in).State, port(in).LID, port(in).SMLID = ib.PortInit, 0, 0 }, "subnet manager",
			link.CodeNoSM},
		{"bad no umad", func(in *Input) {
			port(in).State, port(in).SMLID, in.Missing = ib.PortInit, 0, []string{"ib_umad"}
		}, "subnet manager", codeNoUmad},
		{"bad worker fails", func(in *Input) {
			port(in).State, port(in).SMLID = ib.PortInit, 0
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "backing-off", Reason: "it failed", Worker: "ibnetsm@x.service"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad subnet manager forgot the port", func(in *Input) { port(in).State = ib.PortInit }, "subnet manager", link.CodeSMBusy},
		{"bad subnet manager forgot the port, and this host may run none", func(in *Input) {
			port(in).State = ib.PortInit
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "off", Reason: "no unit asks for one", WorkerState: "inactive"}}
		}, "subnet manager", link.CodeSMBusy},
		{"bad subnet manager forgot the port, and systemd does not answer", func(in *Input) {
			port(in).State = ib.PortInit
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "blocked", Reason: "it is not known whether ibnetsm@x.service runs"}}
		}, "subnet manager", link.CodeSMBusy},
		{"bad no subnet manager, and systemd does not answer", func(in *Input) {
			port(in).State, port(in).SMLID = ib.PortInit, 0
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "blocked", Reason: "it is not known whether ibnetsm@x.service runs"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad fabric cannot be searched", func(in *Input) {
			port(in).State = ib.PortInit
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "blocked", Reason: "no umad", WorkerState: "inactive"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad armed", func(in *Input) { port(in).State = ib.PortArmed }, "subnet manager", link.CodeSMBusy},
		{"bad ipoib missing", func(in *Input) { in.Snapshot.Links, in.Snapshot.Host.NoIPoIB = nil, true }, "interface", link.CodeNoModule},
		{"bad interface down", func(in *Input) { l(in).Flags = 0 }, "interface", link.CodeLinkDown},
		{"bad udev not finished", func(in *Input) {
			st(in).State, st(in).Reasons = link.StatePending, []link.Reason{{Code: link.CodeUdev, Text: "udev has not finished"}}
		}, "interface", link.CodeUdev},
		{"bad key not granted", func(in *Input) { l(in).IPoIB.PKey = 0x8005 }, "partition", link.CodePKeyMissing},
		{"bad group not joined", func(in *Input) { l(in).Flags = link.FlagUp }, "multicast group", link.CodeJoin},
		{"bad MTU", func(in *Input) {
			st(in).Attributes[1] = link.Attribute{Name: "MTUBytes", Wanted: "4092", Actual: "2044",
				Why: link.Reason{Code: link.CodeMTUGroup, Text: "wanted 4092, the group allows 2044"}}
		}, "MTU", link.CodeMTUGroup},
		{"bad connected mode", func(in *Input) {
			st(in).Attributes[0] = link.Attribute{Name: "Mode", Wanted: "connected", Actual: "datagram",
				Why: link.Reason{Code: link.CodeNoConnected, Text: "the adapter does not offer it"}}
		}, "mode", link.CodeNoConnected},
		{"bad address conflict", func(in *Input) {
			l(in).Addresses = []link.Address{{Prefix: netip.MustParsePrefix("fd00::1/64"), Flags: link.AddrDADFailed}}
		}, "address", link.CodeAddressConflict},
		{"bad address refused", func(in *Input) {
			st(in).State = link.StateFailed
			st(in).Attributes = append(st(in).Attributes,
				link.Attribute{Name: "Address", Wanted: "10.0.0.9/24", Why: link.Reason{Code: link.CodeRefused, Text: "no"}})
		}, "address", link.CodeRefused},
		{"bad still configuring", func(in *Input) {
			st(in).State, st(in).Reasons = link.StateConfiguring, []link.Reason{{Code: link.CodeRetry, Text: "tried again"}}
		}, "address", link.CodeRetry},
		{"bad child cannot be made", func(in *Input) {
			in.Report.Links = append(in.Report.Links, link.Status{Name: "ib0.8001", IBDevice: "mlx5_0", Port: 1,
				State: link.StateConfiguring, Reasons: []link.Reason{{Code: link.CodePKeyDuplicate, Text: "twice"}}})
		}, "interface", link.CodePKeyDuplicate},
		{"bad no physical state", func(in *Input) { port(in).State, port(in).Phys = ib.PortDown, 0 }, "cable", link.CodePortDown},
		{"OK no physical state, and Active", func(in *Input) { port(in).Phys = 0 }, "", ""},
		{"bad test pattern", func(in *Input) { port(in).State, port(in).Phys = ib.PortDown, ib.PhysTest }, "cable", link.CodePortDown},
		{"bad logical state", func(in *Input) { port(in).State = ib.PortDown }, "subnet manager", link.CodePortDown},
		{"bad nobody asked for a subnet manager", func(in *Input) {
			port(in).State, port(in).SMLID, in.Units = ib.PortInit, 0, unit("")
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "off", Reason: "no unit does"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad cannot ask", func(in *Input) {
			port(in).State, port(in).SMLID, in.Missing = ib.PortInit, 0, []string{"ib_umad"}
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "blocked", Reason: "no umad"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad stopped by hand", func(in *Input) {
			port(in).State, port(in).SMLID = ib.PortInit, 0
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "stopped", Reason: "stopped by hand"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad foreign one does not serve", func(in *Input) {
			port(in).State, port(in).SMLID = ib.PortInit, 0
			in.SMs = []smctl.Status{{IBDevice: "mlx5_0", Port: 1, Phase: "unserved", Reason: "it is there"}}
		}, "subnet manager", link.CodeNoSM},
		{"bad interface elsewhere", func(in *Input) { in.Snapshot.Links = nil }, "interface", link.CodeNoModule},
		{"bad interface down and no unit", func(in *Input) { l(in).Flags, st(in).Unit, in.All = 0, "", true }, "interface", link.CodeLinkDown},
		{"bad wrong port type of a card that can change", func(in *Input) {
			in.Snapshot.Devices[0].Name, in.Snapshot.Devices[0].Driver = "mlx4_0", "mlx4_core"
			in.Report.Ports[0].IBDevice, in.Units = "mlx4_0", unit("[RoCE]\nDSCP=26\n")
		}, "link layer", codeLinkLayer},
		{"bad wrong layer by the link's unit", func(in *Input) { in.Report.Ports, in.Units = nil, unit("[Port]\nType=eth\n") },
			"link layer", codeLinkLayer},
		{"OK right port type", func(in *Input) { in.Units = unit("[Port]\nType=ib\n") }, "", ""},
		{"OK ethernet", func(in *Input) { port(in).Layer = ib.LinkLayerEthernet }, "", ""},
		{"bad RoCE setting", func(in *Input) {
			port(in).Layer = ib.LinkLayerEthernet
			st(in).Attributes = append(st(in).Attributes,
				link.Attribute{Name: "PFC", Wanted: "3", Why: link.Reason{Code: link.CodeRefused, Text: "no"}})
		}, "setting", link.CodeRefused},
		{"bad ethernet down without an interface", func(in *Input) {
			port(in).Layer, port(in).State, port(in).Phys, in.Snapshot.Links = ib.LinkLayerEthernet, ib.PortDown, ib.PhysDisabled, nil
		}, "cable", link.CodeCable},
		{"bad ethernet down", func(in *Input) {
			port(in).Layer, port(in).State, port(in).Phys = ib.LinkLayerEthernet, ib.PortDown, ib.PhysDisabled
		}, "cable", link.CodeCable},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			in := good()
			tc.spoil(&in)
			var failed []Check
			for _, c := range Run(in, "") {
				for _, k := range c.Checks {
					if k.Result == Fail {
						failed = append(failed, k)
						if k.Next == "" && k.Code != link.CodeMTUGroup && k.Code != link.CodeNoConnected && k.Code != link.CodeRefused &&
							k.Code != link.CodePKeyDuplicate {
							t.Errorf("%s: no next step", k.Name)
						}
					}
				}
			}
			if tc.check == "" {
				if len(failed) > 0 {
					t.Errorf("failed: %+v", failed)
				}
				return
			}
			if len(failed) == 0 || failed[0].Name != tc.check || failed[0].Code != tc.code {
				t.Errorf("failed: %+v, want %s (%s)", failed, tc.check, tc.code)
			}
		})
	}
}

// Where the daemon says why it does not change a port's type, that and its next step
// are named instead of the setting that the unit has already.
func TestWrongLayerSaysWhy(t *testing.T) {
	in := good()
	u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Port]\nType=eth\n"))
	in.Report.Ports, in.Units = nil, &units.Set{Units: []*units.Unit{u}}
	st := &in.Report.Links[0]
	st.Attributes = append(st.Attributes, link.Attribute{Name: "Type", Wanted: "eth", Actual: "ib",
		Why: link.Reason{Text: "ib0 is in use", Next: "ibnetctl down ib0"}})
	for _, c := range Run(in, "") {
		for _, k := range c.Checks {
			if k.Code == codeLinkLayer && k.Next == "ibnetctl down ib0" && strings.HasSuffix(k.Text, "has [Port] Type=eth: ib0 is in use") {
				return
			}
		}
	}
	t.Errorf("%+v", Run(in, ""))
}

// What does not block the way is a note.
func TestNotes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*Input)
		check string
	}{
		{"limited membership", func(in *Input) { in.Snapshot.Devices[0].Ports[0].PKeys = []ib.PKey{0x7fff} }, "partition"},
		{"both memberships", func(in *Input) { in.Snapshot.Devices[0].Ports[0].PKeys = []ib.PKey{0x7fff, 0xffff} }, ""},
		{"managed by another", func(in *Input) {
			in.Report.Links[0].Reasons = []link.Reason{{Code: link.CodeOtherManager, Text: "NetworkManager has it"}}
		}, "interface"},
		{"no address", func(in *Input) { in.Snapshot.Links[0].Addresses = nil }, "address"},
		{"no address and no unit", func(in *Input) { in.Snapshot.Links[0].Addresses, in.Report.Links[0].Unit = nil, "" }, "address"},
	} {
		in := good()
		tc.spoil(&in)
		notes := ""
		for _, c := range Run(in, "") {
			if c.Failed() {
				t.Errorf("%s: %+v", tc.name, c)
			}
			for _, k := range c.Checks {
				if k.Result == Warn {
					notes += k.Name
				}
			}
		}
		if notes != tc.check {
			t.Errorf("%s: notes of %q, want %q", tc.name, notes, tc.check)
		}
	}
}

func TestOnlyOne(t *testing.T) {
	for _, name := range []string{"mlx5_0/1", "mlx5_0", "ib0", "0x0002c903000abcde"} {
		if c := Run(good(), name); len(c) != 1 || c[0].On != "mlx5_0/1" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if c := Run(good(), "ib9"); len(c) != 0 {
		t.Errorf("ib9: %+v", c)
	}
}

// Of a link in another network namespace it is reported what cannot be checked from here, and it is found by both of its names.
func TestLinkElsewhere(t *testing.T) {
	in := func(a link.Attribute, keys ...ib.PKey) Input {
		in := good()
		in.Snapshot.Devices[0].Ports[0].PKeys = append(in.Snapshot.Devices[0].Ports[0].PKeys, keys...)
		in.Report.Links[0].Attributes = append(in.Report.Links[0].Attributes, a)
		return in
	}
	up := link.Attribute{Name: "Partition", Wanted: "0x8001 job0 in network namespace ns", Actual: "0x8001 job0 in network namespace ns",
		Away: link.Away{Name: "eth0", Asked: "job0", Kind: "ipoib", PKey: "0x8001", Namespace: "ns", State: "up"}}
	lost := link.Attribute{Name: "Partition", Wanted: up.Wanted, Away: link.Away{Name: "job0", Kind: "ipoib", State: "not checked"},
		Why: link.Reason{Code: link.CodeMoved, Text: "job0 was moved to another network namespace"}}
	for _, c := range []struct {
		name string
		in   Input
		only string
		want string // check of the link, result, text and next step
	}{
		{"there", in(up, 0x8001), "eth0", "partition ok P_Key 0x8001 is granted|; namespace warn eth0 is in network namespace ns (up): its " +
			"carrier, addresses and routes there are not checked|ip -n ns -d address show dev eth0; "},
		{"by its unit's name, without its P_Key", in(up), "job0", "partition fail the subnet manager has not granted P_Key 0x8001 to port " +
			"mlx5_0/1 (granted: 0xffff)|where the subnet manager at LID 1 runs (ibnetctl sm status names its host), in the " +
			"partitions that it reads: p0001=0x0001, ipoib : 0x0002c903000abcde=full;   (then ibnetctl monitor); " +
			"namespace warn eth0 is in network namespace ns (up): its carrier, addresses and routes there are not " +
			"checked|ip -n ns -d address show dev eth0; "},
		{"moved by another program", in(lost), "job0", "namespace fail job0 was moved to another network namespace|lsns --type=net; " +
			"nsenter --net=/proc/PID/ns/net ip -d link show dev job0; "},
		{"all", in(up, 0x8001), "", "partition ok P_Key 0x8001 is granted|; namespace warn eth0 is in network namespace ns (up): its " +
			"carrier, addresses and routes there are not checked|ip -n ns -d address show dev eth0; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			chains := Run(c.in, c.only)
			if len(chains) != 1 || chains[0].On != "mlx5_0/1" {
				t.Fatalf("%+v", chains)
			}
			got := ""
			for _, k := range chains[0].Checks {
				switch {
				case k.Link == "eth0" || k.Link == "job0":
					got += k.Name + " " + string(k.Result) + " " + k.Text + "|" + k.Next + "; "
				case k.Result == Fail:
					t.Errorf("of the port: %+v", k)
				}
			}
			if got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
	if got := Run(in(up), "job1"); got != nil {
		t.Errorf("no such link: %+v", got)
	}
}
