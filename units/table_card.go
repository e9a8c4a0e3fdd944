package units

import (
	"fmt"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
)

func subnetManagerSection() SectionSpec {
	type S = SubnetManager
	return SectionSpec{
		Name: "SubnetManager", open: func(u *Unit) (any, *Section) { s := u.SubnetManager.open(); return s, &s.Section },
		Keys: []Key{
			enumKey("Manage", false, manageWords, func(x *S) *Value[Manage] { return &x.Manage }),
			enumKey("Engine", false, engineWords, func(x *S) *Value[Engine] { return &x.Engine }),
			{Name: "StartDelaySec", apply: scalar(func(x *S) *Value[time.Duration] { return &x.StartDelaySec }, parseSpan)},
			numKey("Priority", 0, 15, false, func(x *S) *Value[int] { return &x.Priority }),
			{Name: "SubnetPrefix",
				apply: scalar(func(x *S) *Value[uint64] { return &x.SubnetPrefix }, parseSubnetPrefix).
					showing(func(v any) string { return fmt.Sprintf("0x%016x", v) })},
			{Name: "RoutingEngine", Values: []string{"minhop", "updn", "dnup", "ftree", "dor", "layered", "lash", "dfsssp", "nue", "sssp",
				"torus-2QoS"},
				apply: scalar(func(x *S) *Value[string] { return &x.RoutingEngine }, parseRoutingEngines)},
			{Name: "PartitionsFile", apply: scalar(func(x *S) *Value[string] { return &x.PartitionsFile }, parseAbsPath)},
			{Name: "Partition", List: true, apply: list(func(x *S) *[]Value[string] { return &x.Partition }, whole, parsePartitionRule)},
			numKey("LMC", 0, 7, false, func(x *S) *Value[ib.LMC] { return &x.LMC }),
			boolKey("StopWhenForeignMaster", false, func(x *S) *Value[bool] { return &x.StopWhenForeignMaster }),
			{Name: "StopDelaySec", apply: scalar(func(x *S) *Value[time.Duration] { return &x.StopDelaySec }, parseSpan)},
			{Name: "KeyFile", apply: scalar(func(x *S) *Value[string] { return &x.KeyFile }, parseAbsPath)},
			numKey("MKeyProtect", 0, 3, false, func(x *S) *Value[int] { return &x.MKeyProtect }),
			{Name: "MKeyLeaseSec",
				apply: scalar(func(x *S) *Value[time.Duration] { return &x.MKeyLeaseSec }, spanTo(0, 65535*time.Second))},
			boolKey("QoS", false, func(x *S) *Value[bool] { return &x.QoS }),
			{Name: "QoSPolicyFile", apply: scalar(func(x *S) *Value[string] { return &x.QoSPolicyFile }, parseAbsPath)},
			{Name: "RootGUIDFile", apply: scalar(func(x *S) *Value[string] { return &x.RootGUIDFile }, parseAbsPath)},
			{Name: "CNGUIDFile", apply: scalar(func(x *S) *Value[string] { return &x.CNGUIDFile }, parseAbsPath)},
			{Name: "IOGUIDFile", apply: scalar(func(x *S) *Value[string] { return &x.IOGUIDFile }, parseAbsPath)},
			{Name: "HopWeightsFile", apply: scalar(func(x *S) *Value[string] { return &x.HopWeightsFile }, parseAbsPath)},
			{Name: "GUIDRoutingOrderFile", apply: scalar(func(x *S) *Value[string] { return &x.GUIDRoutingOrderFile }, parseAbsPath)},
			{Name: "PrefixRoutesFile", apply: scalar(func(x *S) *Value[string] { return &x.PrefixRoutesFile }, parseAbsPath)},
			{Name: "GUID2LIDFile", apply: scalar(func(x *S) *Value[string] { return &x.GUID2LIDFile }, parseAbsPath)},
			enumKey("PartitionEnforcement", false, enforcementWords, func(x *S) *Value[Enforcement] { return &x.PartitionEnforcement }),
			{Name: "NodeNameMap", apply: scalar(func(x *S) *Value[string] { return &x.NodeNameMap }, parseAbsPath)},
			{Name: "SweepSec", apply: scalar(func(x *S) *Value[time.Duration] { return &x.SweepSec }, spanTo(0, 24*time.Hour))},
			{Name: "PollSec",
				apply: scalar(func(x *S) *Value[time.Duration] { return &x.PollSec }, spanTo(time.Millisecond, time.Minute))},
			enumKey("Reregister", false, reregisterWords, func(x *S) *Value[Reregister] { return &x.Reregister }),
			{Name: "TimeoutSec",
				apply: scalar(func(x *S) *Value[time.Duration] { return &x.TimeoutSec }, spanTo(time.Millisecond, 10*time.Second))},
			numKey("Retries", 0, 50, false, func(x *S) *Value[int] { return &x.Retries }),
			numKey("Window", 1, 4096, false, func(x *S) *Value[int] { return &x.Window }),
			boolKey("Verbose", false, func(x *S) *Value[bool] { return &x.Verbose }),
		},
	}
}

func portSection() SectionSpec {
	return SectionSpec{
		Name: "Port", open: func(u *Unit) (any, *Section) { return &u.Port, &u.Port.Section },
		Keys: []Key{
			enumKey("Type", false, portTypeWords, func(x *Port) *Value[PortType] { return &x.Type }),
			boolKey("ChangeWhileInUse", false, func(x *Port) *Value[bool] { return &x.ChangeWhileInUse }),
			{Name: "NodeDescription", apply: scalar(func(x *Port) *Value[string] { return &x.NodeDescription }, parseNodeDescription)},
		},
	}
}

func roceSection() SectionSpec {
	type R = RoCE
	pmap := func(name string, maxFrom, maxTo uint64, field func(*R) *[]Value[PriorityMap]) Key {
		return Key{Name: name, Syntax: fmt.Sprintf("0-%d:0-%d...", maxFrom, maxTo), List: true,
			apply: list(field, commaWords, parsePriorityMap(maxFrom, maxTo))}
	}
	set := func(name string, field func(*R) *Value[uint8]) Key {
		return Key{Name: name, Values: []string{"none"}, List: true, apply: prioritySet(field)}
	}
	return SectionSpec{
		Name: "RoCE", open: func(u *Unit) (any, *Section) { return &u.RoCE, &u.RoCE.Section },
		Keys: []Key{
			numKey("Version", 1, 2, false, func(x *R) *Value[int] { return &x.Version }),
			numKey("DSCP", 0, 63, false, func(x *R) *Value[uint8] { return &x.DSCP }),
			numKey("TypeOfService", 0, 255, false, func(x *R) *Value[uint8] { return &x.TypeOfService }),
			numKey("Priority", 0, 7, false, func(x *R) *Value[uint8] { return &x.Priority }),
			set("PFC", func(x *R) *Value[uint8] { return &x.PFC }),
			enumKey("Trust", false, trustWords, func(x *R) *Value[Trust] { return &x.Trust }),
			{Name: "ETS", List: true, apply: list(func(x *R) *[]Value[ETSClass] { return &x.ETS }, commaWords, parseETS)},
			pmap("PriorityToClass", 7, 7, func(x *R) *[]Value[PriorityMap] { return &x.PriorityToClass }),
			pmap("DSCPToPriority", 63, 7, func(x *R) *[]Value[PriorityMap] { return &x.DSCPToPriority }),
			{Name: "BufferSize", List: true,
				apply: list(func(x *R) *[]Value[BufferSize] { return &x.BufferSize }, commaWords, parseBufferSize)},
			pmap("PriorityToBuffer", 7, 7, func(x *R) *[]Value[PriorityMap] { return &x.PriorityToBuffer }),
			numKey("CableLength", 1, 999, false, func(x *R) *Value[int] { return &x.CableLength }),
			set("ECN", func(x *R) *Value[uint8] { return &x.ECN }),
			numKey("GIDIndex", 1, 1023, false, func(x *R) *Value[int] { return &x.GIDIndex }),
			boolKey("WriteModprobeFile", false, func(x *R) *Value[bool] { return &x.WriteModprobeFile }),
		},
	}
}

// prioritySet is a key with a set of priorities in bits; assignments add.
func prioritySet(field func(*RoCE) *Value[uint8]) setter {
	print := func(obj any) []string {
		f := field(obj.(*RoCE))
		if !f.Set {
			return nil
		}
		if f.V == 0 {
			return []string{"none"}
		}
		var out []string
		for i := range 8 {
			if f.V&(1<<i) != 0 {
				out = append(out, fmt.Sprint(i))
			}
		}
		return out
	}
	return setter{show: print, set: func(p *parser, obj any, a *assign) {
		f := field(obj.(*RoCE))
		if a.val == "" {
			*f = Value[uint8]{}
			return
		}
		eachItem(p, a, 0, commaWords, func(item string, pos Place) {
			if item == "none" {
				*f = Value[uint8]{Set: true, Pos: pos}
				return
			}
			lo, hi, err := parseRange(item, 0, 7)
			if err != nil {
				p.bad(pos, fmt.Errorf("%w, nor none", err), "the item is ignored")
				return
			}
			v := f.V
			for i := lo; i <= hi; i++ {
				v |= 1 << i
			}
			*f = Value[uint8]{V: v, Set: true, Pos: pos}
		})
	}}
}

func softRoCESection() SectionSpec {
	return SectionSpec{
		Name: "SoftRoCE", open: func(u *Unit) (any, *Section) { return &u.SoftRoCE, &u.SoftRoCE.Section },
		Keys: []Key{
			enumKey("Driver", false, softDriverWords, func(x *SoftRoCE) *Value[SoftDriver] { return &x.Driver }),
			{Name: "Name", apply: scalar(func(x *SoftRoCE) *Value[string] { return &x.Name }, parseDeviceName)},
		},
	}
}

func virtualFunctionsSection() SectionSpec {
	type V = VirtualFunctions
	autoOnly := func(s string) (VFGUID, error) {
		g, err := parseVFGUID(s)
		if err == nil && !g.Auto {
			return g, fmt.Errorf("%q cannot be the GUID of all virtual functions; write auto, or GUIDs in [VF] sections", ib.Clip(s))
		}
		return g, err
	}
	return SectionSpec{
		Name: "VirtualFunctions", open: func(u *Unit) (any, *Section) { return &u.VirtualFunctions, &u.VirtualFunctions.Section },
		Keys: []Key{
			numKey("Count", 0, 65535, false, func(x *V) *Value[int] { return &x.Count }),
			boolKey("Autoprobe", false, func(x *V) *Value[bool] { return &x.Autoprobe }),
			{Name: "NodeGUID", Values: []string{"auto"}, apply: scalar(func(x *V) *Value[VFGUID] { return &x.NodeGUID }, autoOnly)},
			{Name: "PortGUID", Values: []string{"auto"}, apply: scalar(func(x *V) *Value[VFGUID] { return &x.PortGUID }, autoOnly)},
			{Name: "LinkState", Values: wordList(vfLinkWords),
				apply: scalar(func(x *V) *Value[VFLinkState] { return &x.LinkState }, boolOr(VFLinkEnable, VFLinkDisable, vfLinkWords))},
			boolKey("Trust", false, func(x *V) *Value[bool] { return &x.Trust }),
		},
	}
}

func vfSection() SectionSpec {
	type V = VF
	guid := func(name string, field func(*V) *Value[VFGUID]) Key {
		return Key{Name: name, Values: []string{"auto"}, essential: true, apply: scalar(field, parseVFGUID)}
	}
	rate := func(name string, field func(*V) *Value[uint32]) Key {
		return Key{Name: name, apply: scalar(field, parseBitRate).showing(func(v any) string { return fmt.Sprintf("%dM", v) })}
	}
	return SectionSpec{
		Name: "VF", Repeat: true, open: func(u *Unit) (any, *Section) { o := &VF{}; return o, &o.Section },
		Keys: []Key{
			{Name: "VirtualFunction", essential: true,
				apply: scalar(func(x *V) *Value[int] { return &x.VirtualFunction }, number[int](0, 65534))},
			guid("NodeGUID", func(x *V) *Value[VFGUID] { return &x.NodeGUID }),
			guid("PortGUID", func(x *V) *Value[VFGUID] { return &x.PortGUID }),
			{Name: "LinkState", Values: wordList(vfLinkWords),
				apply: scalar(func(x *V) *Value[VFLinkState] { return &x.LinkState }, boolOr(VFLinkEnable, VFLinkDisable, vfLinkWords))},
			boolKey("Trust", false, func(x *V) *Value[bool] { return &x.Trust }),
			rate("MinRate", func(x *V) *Value[uint32] { return &x.MinRate }),
			rate("MaxRate", func(x *V) *Value[uint32] { return &x.MaxRate }),
			{Name: "MACAddress", apply: scalar(func(x *V) *Value[ib.HWAddr] { return &x.MACAddress }, parseMAC)},
			boolKey("MACSpoofCheck", false, func(x *V) *Value[bool] { return &x.MACSpoofCheck }),
			numKey("VLANId", 0, 4095, false, func(x *V) *Value[uint16] { return &x.VLANId }),
			numKey("QualityOfService", 0, 7, false, func(x *V) *Value[uint8] { return &x.QualityOfService }),
			enumKey("VLANProtocol", false, vlanProtocolWords, func(x *V) *Value[VLANProtocol] { return &x.VLANProtocol }),
		},
	}
}

func modulesSection() SectionSpec {
	return SectionSpec{
		Name: "Modules", open: func(u *Unit) (any, *Section) { return &u.Modules, &u.Modules.Section },
		Keys: []Key{
			{Name: "Load", List: true, apply: list(func(x *Modules) *[]Value[string] { return &x.Load }, words, parseModule)},
		},
	}
}

// parsePartitionRule checks a rule; it is handed on as it is written.
func parsePartitionRule(s string) (string, error) {
	p, err := partition.ParseRule(s)
	if err == nil {
		key := strings.TrimLeft(s, " \t;")
		err = decimalKey(key[:strings.IndexAny(key+" ", " \t;")], p.PKey)
	}
	return s, err
}
