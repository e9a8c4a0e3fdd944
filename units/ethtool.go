package units

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"ibnetworkd/ib"
)

// EthtoolParam is a setting of a link's queues, as ethtool has it. Those of a group
// have the order of their attributes (include/uapi/linux/ethtool_netlink.h).
type EthtoolParam uint8

// The settings that are treated by themselves; EthtoolParams is how many there are.
const (
	RxCoalesceSec         EthtoolParam = 8
	RxMaxCoalescedFrames  EthtoolParam = 9
	TxCoalesceSec         EthtoolParam = 12
	TxMaxCoalescedFrames  EthtoolParam = 13
	UseAdaptiveRxCoalesce EthtoolParam = 17
	UseAdaptiveTxCoalesce EthtoolParam = 18
	EthtoolParams         EthtoolParam = 30
)

// EthtoolGroup is a set of settings that a driver takes together.
type EthtoolGroup uint8

// The groups, and the options of ethtool that set and show them: -G and -g ...
const (
	EthtoolRings EthtoolGroup = iota
	EthtoolChannels
	EthtoolCoalesce
)

type ethtoolKind uint8

const (
	kindCount  ethtoolKind = iota // a number from 1, or max
	kindNumber                    // a number from 0
	kindMicro                     // a time span, in microseconds
	kindSecond                    // a time span, in seconds
	kindBool
)

var ethtoolTable = [EthtoolParams]struct {
	key, word string
	group     EthtoolGroup
	kind      ethtoolKind
}{
	{"RxBufferSize", "rx", EthtoolRings, kindCount},
	{"RxMiniBufferSize", "rx-mini", EthtoolRings, kindCount},
	{"RxJumboBufferSize", "rx-jumbo", EthtoolRings, kindCount},
	{"TxBufferSize", "tx", EthtoolRings, kindCount},
	{"RxChannels", "rx", EthtoolChannels, kindCount},
	{"TxChannels", "tx", EthtoolChannels, kindCount},
	{"OtherChannels", "other", EthtoolChannels, kindCount},
	{"CombinedChannels", "combined", EthtoolChannels, kindCount},
	{"RxCoalesceSec", "rx-usecs", EthtoolCoalesce, kindMicro},
	{"RxMaxCoalescedFrames", "rx-frames", EthtoolCoalesce, kindNumber},
	{"RxCoalesceIrqSec", "rx-usecs-irq", EthtoolCoalesce, kindMicro},
	{"RxMaxCoalescedIrqFrames", "rx-frames-irq", EthtoolCoalesce, kindNumber},
	{"TxCoalesceSec", "tx-usecs", EthtoolCoalesce, kindMicro},
	{"TxMaxCoalescedFrames", "tx-frames", EthtoolCoalesce, kindNumber},
	{"TxCoalesceIrqSec", "tx-usecs-irq", EthtoolCoalesce, kindMicro},
	{"TxMaxCoalescedIrqFrames", "tx-frames-irq", EthtoolCoalesce, kindNumber},
	{"StatisticsBlockCoalesceSec", "stats-block-usecs", EthtoolCoalesce, kindMicro},
	{"UseAdaptiveRxCoalesce", "adaptive-rx", EthtoolCoalesce, kindBool},
	{"UseAdaptiveTxCoalesce", "adaptive-tx", EthtoolCoalesce, kindBool},
	{"CoalescePacketRateLow", "pkt-rate-low", EthtoolCoalesce, kindNumber},
	{"RxCoalesceLowSec", "rx-usecs-low", EthtoolCoalesce, kindMicro},
	{"RxMaxCoalescedLowFrames", "rx-frames-low", EthtoolCoalesce, kindNumber},
	{"TxCoalesceLowSec", "tx-usecs-low", EthtoolCoalesce, kindMicro},
	{"TxMaxCoalescedLowFrames", "tx-frames-low", EthtoolCoalesce, kindNumber},
	{"CoalescePacketRateHigh", "pkt-rate-high", EthtoolCoalesce, kindNumber},
	{"RxCoalesceHighSec", "rx-usecs-high", EthtoolCoalesce, kindMicro},
	{"RxMaxCoalescedHighFrames", "rx-frames-high", EthtoolCoalesce, kindNumber},
	{"TxCoalesceHighSec", "tx-usecs-high", EthtoolCoalesce, kindMicro},
	{"TxMaxCoalescedHighFrames", "tx-frames-high", EthtoolCoalesce, kindNumber},
	{"CoalescePacketRateSampleIntervalSec", "sample-interval", EthtoolCoalesce, kindSecond},
}

// Key is the key of [Link], as systemd.link(5) spells it.
func (p EthtoolParam) Key() string { return ethtoolTable[p].key }

// Word is ethtool's word for the setting.
func (p EthtoolParam) Word() string { return ethtoolTable[p].word }

// Group is the setting's.
func (p EthtoolParam) Group() EthtoolGroup { return ethtoolTable[p].group }

// Bool reports a setting that is on (1) or off (0).
func (p EthtoolParam) Bool() bool { return ethtoolTable[p].kind == kindBool }

// EthtoolSetting is one setting with its value in the kernel's unit, or Max: the
// most that the driver takes.
type EthtoolSetting struct {
	Param EthtoolParam
	Max   bool
	N     uint32
}

// String prints the value as a unit file has it.
func (s EthtoolSetting) String() string {
	switch kind := ethtoolTable[s.Param].kind; {
	case s.Max:
		return "max"
	case kind == kindMicro:
		return strconv.FormatUint(uint64(s.N), 10) + "us"
	case kind == kindSecond:
		return strconv.FormatUint(uint64(s.N), 10) + "s"
	case kind == kindBool && s.N != 0:
		return "yes"
	case kind == kindBool:
		return "no"
	}
	return strconv.FormatUint(uint64(s.N), 10)
}

func parseEthtool(p EthtoolParam) func(string) (EthtoolSetting, error) {
	return func(s string) (EthtoolSetting, error) {
		out := EthtoolSetting{Param: p}
		var n, lo uint64
		var err error
		switch kind := ethtoolTable[p].kind; kind {
		case kindBool:
			b, err := parseBool(s)
			if b {
				out.N = 1
			}
			return out, err
		case kindMicro, kindSecond:
			if n, err = parseMicroseconds(s); err != nil {
				return out, err
			}
			if kind == kindSecond {
				if n%1e6 != 0 || n == 0 {
					return out, fmt.Errorf("%q is not a number of whole seconds", ib.Clip(s))
				}
				n /= 1e6
			}
		case kindCount:
			if out.Max = s == "max"; out.Max {
				return out, nil
			}
			lo = 1
			fallthrough
		default:
			if n, err = parseUint(s, lo, math.MaxUint32); err != nil {
				return out, err
			}
		}
		if n > math.MaxUint32 {
			return out, fmt.Errorf("%q is too large", ib.Clip(s))
		}
		out.N = uint32(n)
		return out, nil
	}
}

// ethtoolKeys are keys of [Link] that systemd.link has and systemd.network has not.
func ethtoolKeys() (keys []Key) {
	for p := range EthtoolParams {
		holder := func(v *Value[EthtoolSetting]) *Value[EthtoolSetting] { return v }
		one := scalar(holder, parseEthtool(p))
		k := Key{Name: p.Key(), apply: setter{
			show: func(obj any) []string { v := obj.(*Link).ethtool(p); return one.show(&v) },
			value: func(obj any) (any, bool) {
				v := obj.(*Link).ethtool(p)
				return v.V, v.Set
			},
			set: func(q *parser, obj any, a *assign) {
				l := obj.(*Link)
				v := l.ethtool(p)
				one.set(q, &v, a)
				l.setEthtool(p, v)
			},
		}}
		switch ethtoolTable[p].kind {
		case kindCount:
			k.Syntax, k.Values = "NUMBER|max", []string{"max"}
		case kindNumber:
			k.Syntax = "NUMBER"
		case kindBool:
			k.Values = boolWords
		default:
			k.Syntax = "TIMESPAN"
		}
		keys = append(keys, k)
	}
	return keys
}

func (l *Link) ethtool(p EthtoolParam) Value[EthtoolSetting] {
	for _, v := range l.Ethtool {
		if v.V.Param == p {
			return v
		}
	}
	return Value[EthtoolSetting]{}
}

// setEthtool keeps Ethtool in the order of EthtoolParam.
func (l *Link) setEthtool(p EthtoolParam, v Value[EthtoolSetting]) {
	l.Ethtool = slices.DeleteFunc(slices.Clone(l.Ethtool), func(x Value[EthtoolSetting]) bool { return x.V.Param == p })
	if v.Set {
		i, _ := slices.BinarySearchFunc(l.Ethtool, p, func(x Value[EthtoolSetting], p EthtoolParam) int { return int(x.V.Param) - int(p) })
		l.Ethtool = slices.Insert(l.Ethtool, i, v)
	}
}

// checkEthtool takes away fixed delays of a direction in which the driver chooses them.
func (p *parser) checkEthtool() {
	l := &p.u.Link
	for _, x := range []struct {
		adaptive EthtoolParam
		fixed    []EthtoolParam
	}{
		{UseAdaptiveRxCoalesce, []EthtoolParam{RxCoalesceSec, RxMaxCoalescedFrames}},
		{UseAdaptiveTxCoalesce, []EthtoolParam{TxCoalesceSec, TxMaxCoalescedFrames}},
	} {
		on := l.ethtool(x.adaptive)
		for _, f := range x.fixed {
			if v := l.ethtool(f); on.V.N != 0 && v.Set {
				p.at("Link", f.Key()).problem(v.Pos, Warning, "the key is ignored", "%s= and %s=yes (%s) exclude each other: the driver "+
					"chooses the delay", f.Key(), x.adaptive.Key(), on.Pos)
				l.setEthtool(f, Value[EthtoolSetting]{})
			}
		}
	}
}
