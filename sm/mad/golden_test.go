package mad

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

// TestGolden decodes MADs that ibsim and opensm encoded and compares the fields
// with what libibmad and saquery printed of the same attribute at the same
// time. `go run ./lab/smbench capture` rewrites the file.
func TestGolden(t *testing.T) {
	b := testkit.ReadFile(t, "testdata/golden.txt")
	seen := map[string]bool{}
	for _, rec := range strings.Split(string(b), "== ")[1:] {
		lines := strings.Split(rec, "\n")
		raw, err := hex.DecodeString(lines[1])
		if err != nil || len(raw) != Size {
			t.Fatalf("%s: %v", lines[0], err)
		}
		name := lines[0]
		show := golden[name]
		if show == nil {
			t.Errorf("no decoder for %s", name)
			continue
		}
		seen[name] = true
		m := Buf(raw)
		off := SMPDataOffset
		if ClassOf(&m) == ClassSA {
			off = SADataOffset
		}
		got := show(t, m[off:])
		text := normal(strings.Join(lines[2:], "\n"))
		for key, v := range got {
			want := fmt.Sprintf("\n%s=%v\n", key, v)
			if v == "" {
				want = "\n" + key + "\n" // a line of a table
			}
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s is not in what the tool printed:\n%s", name, strings.TrimSpace(want), text)
			}
		}
	}
	for name := range golden {
		if !seen[name] {
			t.Errorf("%s is not in the golden file", name)
		}
	}
}

var dots = regexp.MustCompile(`^\s*([^.:]+?):?\.{2,}:?\s*(.*?)\s*$`)

// normal makes key=value of the tools' lines.
func normal(s string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for l := range strings.Lines(s) {
		l = strings.TrimRight(l, "\n")
		if m := dots.FindStringSubmatch(l); m != nil {
			l = m[1] + "=" + m[2]
		}
		b.WriteString(strings.TrimSpace(l) + "\n")
	}
	return b.String()
}

type fields = map[string]any

func decode[T any, P interface {
	*T
	Decode([]byte) error
}](t *testing.T, b []byte) (v T) {
	t.Helper()
	testkit.NoError(t, P(&v).Decode(b))
	return v
}

func h(w int, v any) string { return fmt.Sprintf("0x%0*x", w, v) }
func hU(v any) string       { return fmt.Sprintf("0x%X", v) }
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
func gid(g ib.GID) string { return netip.AddrFrom16(g).String() }

var widths = map[uint8]string{2: "4X", 3: "1X or 4X", 31: "1X or 4X or 8X or 12X or 2X"}

var nodeTypes = map[ib.NodeType]string{ib.NodeCA: "Channel Adapter", ib.NodeSwitch: "Switch"}

func portFields(i PortInfo) fields {
	phys, overrun := i.ErrorThresholds()
	return fields{
		"GidPrefix": h(16, i.GIDPrefix()), "Lid": int(i.LID()), "SMLid": int(i.MasterSMLID()), "CapMask": h(0, i.CapMask()),
		"DiagCode":        h(4, be.Uint16(i.b[24:])),
		"MkeyLeasePeriod": i.MKeyLease(), "LocalPort": i.LocalPort(), "LinkWidthEnabled": widths[i.WidthEnabled()],
		"LinkWidthSupported": widths[i.WidthSupported()], "LinkWidthActive": widths[i.WidthActive()], "LinkState": i.State(),
		"PhysLinkState": i.PhysState(), "LinkDownDefState": map[uint8]string{1: "Sleep", 2: "Polling"}[i.LinkDownDefault()],
		"ProtectBits": i.MKeyProtect(), "LMC": i.LMC(), "NeighborMTU": i.NeighborMTU(), "SMSL": i.MasterSMSL(), "InitType": h(2, i.b[37]&15),
		"VLHighLimit": i.VLHighLimit(), "VLArbHighCap": i.VLArbHighCap(), "VLArbLowCap": i.VLArbLowCap(), "InitReply": h(2, i.b[41]>>4),
		"MtuCap": i.MTUCap(), "VLStallCount": i.VLStallCount(), "HoqLife": i.HOQLife(), "VLCap": map[uint8]string{4: "VL0-7"}[i.VLCap()],
		"OperVLs": map[uint8]string{4: "VL0-7"}[i.OperVLs()], "PartEnforceInb": flag(i.Enforcement()&EnforceInbound != 0),
		"PartEnforceOutb": flag(i.Enforcement()&EnforceOutbound != 0),
		"FilterRawInb":    flag(i.RawFilters()&2 != 0), "FilterRawOutb": flag(i.RawFilters()&1 != 0), "MkeyViolations": i.MKeyViolations(),
		"PkeyViolations": i.PKeyViolations(), "QkeyViolations": i.QKeyViolations(), "GuidCap": i.GUIDCap(),
		"ClientReregister": flag(i.ClientReregister()),
		"SubnetTimeout":    i.SubnetTimeout(), "RespTimeVal": i.RespTime(), "LocalPhysErr": phys, "OverrunErr": overrun,
		"MaxCreditHint": be.Uint16(i.b[54:]), "RoundTrip": be.Uint32(i.b[56:]) & 0xffffff, "CapabilityMask2": h(0, i.CapMask2()),
		"LinkSpeedSupported":    map[uint8]string{7: "2.5 Gbps or 5.0 Gbps or 10.0 Gbps"}[i.SpeedSupported()],
		"LinkSpeedEnabled":      map[uint8]string{7: "2.5 Gbps or 5.0 Gbps or 10.0 Gbps"}[i.SpeedEnabled()],
		"LinkSpeedActive":       map[uint8]string{4: "10.0 Gbps"}[i.SpeedActive()],
		"LinkSpeedExtActive":    map[uint8]string{2: "25.78125 Gbps"}[i.SpeedExtActive()],
		"LinkSpeedExtSupported": map[uint8]string{7: "14.0625 Gbps or 25.78125 Gbps or 53.125 Gbps"}[i.SpeedExtSupported()],
		"LinkSpeedExtEnabled":   map[uint8]string{3: "14.0625 Gbps or 25.78125 Gbps"}[i.SpeedExtEnabled()],
	}
}

var golden = map[string]func(*testing.T, []byte) fields{
	"NodeInfo": func(t *testing.T, b []byte) fields {
		i := decode[NodeInfo](t, b)
		return fields{
			"BaseVers": i.BaseVersion, "ClassVers": i.ClassVersion, "NodeType": nodeTypes[i.NodeType], "NumPorts": i.NumPorts,
			"SystemGuid": i.SystemImageGUID, "Guid": i.NodeGUID, "PortGuid": i.PortGUID, "PartCap": i.PartitionCap,
			"DevId": h(4, i.DeviceID), "Revision": h(8, i.Revision), "VendorId": h(6, i.VendorID),
		}
	},
	"NodeDescription": func(t *testing.T, b []byte) fields {
		d := decode[NodeDescription](t, b)
		return fields{"Node Description": d.String()}
	},
	"PortInfo": func(t *testing.T, b []byte) fields {
		f := portFields(decode[PortInfo](t, b))
		delete(f, "LocalPort") // the capture asks by another way than the tool
		return f
	},
	"SwitchInfo": func(t *testing.T, b []byte) fields {
		i := decode[SwitchInfo](t, b)
		in, out := i.EnforcesPartitions()
		return fields{
			"LinearFdbCap": i.LinearFDBCap(), "RandomFdbCap": i.RandomFDBCap(), "McastFdbCap": i.MulticastFDBCap(), "LinearFdbTop": i.LinearFDBTop(),
			"DefPort": i.DefaultPorts()[0], "DefMcastPrimPort": i.DefaultPorts()[1], "DefMcastNotPrimPort": i.DefaultPorts()[2],
			"LifeTime": i.LifeTime(), "StateChange": flag(i.PortStateChange()),
			"OptSLtoVLMapping": i.OptimizedSLtoVL(), "LidsPerPort": be.Uint16(i.b[12:]),
			"PartEnforceCap": i.PartitionEnforcementCap(), "InboundPartEnf": flag(in),
			"OutboundPartEnf":  flag(out),
			"FilterRawInbound": flag(i.b[16]&0x20 != 0), "FilterRawOutbound": flag(i.b[16]&0x10 != 0), "EnhancedPort0": flag(i.EnhancedPort0()),
			"MulticastFDBTop": h(4, i.MulticastFDBTop()),
		}
	},
	"GUIDInfo": func(t *testing.T, b []byte) fields {
		g := decode[GUIDInfo](t, b)
		return fields{"0: " + g[0].String() + " " + g[1].String(): ""}
	},
	"PortCounters": func(t *testing.T, b []byte) fields {
		c := decode[PortCounters](t, b)
		return fields{"PortSelect": c.PortSelect, "CounterSelect": h(4, c.CounterSelect), "SymbolErrorCounter": c.SymbolErrors,
			"LinkDownedCounter": c.LinkDowned,
			"VL15Dropped":       c.VL15Dropped, "PortXmitWait": c.XmitWait}
	},
	"SMInfo": func(t *testing.T, b []byte) fields {
		i := decode[SMInfo](t, b)
		if i.GUID != 0x2c90000100001 || i.Priority != 5 || i.State != SMMaster || i.SMKey != 1 {
			t.Errorf("SMInfo %+v", i)
		}
		return nil
	},
	"ClassPortInfo": func(t *testing.T, b []byte) fields {
		i := decode[ClassPortInfo](t, b)
		return fields{"Base version": i.BaseVersion, "Class version": i.ClassVersion, "Capability mask": h(0, i.CapMask),
			"Capability mask 2":   "0x" + fmt.Sprintf("%08X", i.CapMask2),
			"Response time value": h(0, i.RespTimeValue), "Redirect QP": h(8, i.RedirectQP), "Redirect QKey": i.RedirectQKey,
			"Trap QKey": i.TrapQKey, "Trap LID": int(i.TrapLID)}
	},
	"NodeRecord": func(t *testing.T, b []byte) fields {
		r := decode[NodeRecord](t, b)
		return fields{"lid": int(r.LID), "base_version": h(0, r.Info.BaseVersion), "node_type": nodeTypes[r.Info.NodeType],
			"num_ports": r.Info.NumPorts,
			"sys_guid":  r.Info.SystemImageGUID, "node_guid": r.Info.NodeGUID, "port_guid": r.Info.PortGUID,
			"partition_cap": h(0, r.Info.PartitionCap),
			"revision":      hU(r.Info.Revision), "port_num": r.Info.LocalPortNum, "vendor_id": hU(r.Info.VendorID),
			"NodeDescription": r.Description.String()}
	},
	"PortInfoRecord": func(t *testing.T, b []byte) fields {
		r := decode[PortInfoRecord](t, b)
		f := portFields(r.Info)
		f["EndPortLid"], f["PortNum"], f["Options"] = int(r.LID), r.Port, h(0, r.Options)
		return f
	},
	"PathRecord": func(t *testing.T, b []byte) fields {
		r := decode[PathRecord](t, b)
		return fields{"service_id": h(16, r.ServiceID), "dgid": gid(r.DGID), "sgid": gid(r.SGID), "dlid": int(r.DLID),
			"slid": int(r.SLID), "tclass": h(0, r.TClass),
			"num_path_revers": h(0, bit(r.Reversible, 7)|r.NumbPath), "pkey": hU(uint16(r.PKey)), "sl": h(0, uint8(r.SL)),
			"qos_class": h(0, r.QoSClass),
			"mtu":       hU(sel(r.MTUSel, uint8(r.MTU))), "rate": hU(sel(r.RateSel, uint8(r.Rate))),
			"pkt_life": hU(sel(r.LifeTimeSel, r.LifeTime)), "preference": h(0, r.Preference)}
	},
	"MCMemberRecord": func(t *testing.T, b []byte) fields {
		r := decode[MCMemberRecord](t, b)
		if r.QKey != 0xb1b || r.Scope != ScopeLinkLocal {
			t.Errorf("%+v", r)
		}
		return fields{"MGID": gid(r.MGID), "Mlid": hU(uint16(r.MLID)), "Mtu": hU(sel(r.MTUSel, uint8(r.MTU))), "pkey": hU(uint16(r.PKey)),
			"Rate": hU(sel(r.RateSel, uint8(r.Rate))), "SL": hU(uint8(r.SL))}
	},
	"SwitchInfoRecord": func(t *testing.T, b []byte) fields {
		r := decode[SwitchInfoRecord](t, b)
		return fields{"LID": int(r.LID), "LinearFDBCap": hU(r.Info.LinearFDBCap()), "MulticastFDBCap": hU(r.Info.MulticastFDBCap()),
			"LinearFDBTop": hU(r.Info.LinearFDBTop()), "PartitionEnforcementCap": hU(r.Info.PartitionEnforcementCap())}
	},
	"LinkRecord": func(t *testing.T, b []byte) fields {
		r := decode[LinkRecord](t, b)
		return fields{"FromLID": int(r.FromLID), "FromPort": r.FromPort, "ToPort": r.ToPort, "ToLID": int(r.ToLID)}
	},
	"GUIDInfoRecord": func(t *testing.T, b []byte) fields {
		r := decode[GUIDInfoRecord](t, b)
		return fields{"LID": int(r.LID), "Block": r.Block, "GUID 0": r.Info[0]}
	},
	"SMInfoRecord": func(t *testing.T, b []byte) fields {
		r := decode[SMInfoRecord](t, b)
		return fields{"LID": int(r.LID), "GUID": r.Info.GUID, "SM_Key": h(16, r.Info.SMKey), "Priority": r.Info.Priority,
			"SMState": uint8(r.Info.State)}
	},
	"SLtoVLRecord": func(t *testing.T, b []byte) fields {
		r := decode[SLtoVLRecord](t, b)
		return fields{"LID": int(r.LID), "InPort": r.InPort, "OutPort": r.OutPort}
	},
	"VLArbRecord": func(t *testing.T, b []byte) fields {
		r := decode[VLArbRecord](t, b)
		return fields{"LID": int(r.LID), "Port": r.Port, "Block": r.Block}
	},
	"LFTRecord": func(t *testing.T, b []byte) fields {
		r := decode[LFTRecord](t, b)
		f := fields{"LID": int(r.LID), "Block": r.Block}
		for lid, port := range r.Table {
			f[fmt.Sprintf("%d\t%d", lid, port)] = ""
		}
		return f
	},
	"PKeyTableRecord": func(t *testing.T, b []byte) fields {
		r := decode[PKeyTableRecord](t, b)
		return fields{"LID": int(r.LID), "Port": r.Port, "Block": r.Block, fmt.Sprintf("%v %v %v %v %v %v %v %v", r.Table[0], r.Table[1],
			r.Table[2], r.Table[3], r.Table[4], r.Table[5], r.Table[6], r.Table[7]): ""}
	},
}
