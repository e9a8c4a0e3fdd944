package units

import (
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// word is one spelling of an enum's value. The first word of a value is the one
// printed; further ones are accepted.
type word[T comparable] struct {
	v T
	s string
}

func printWord[T interface {
	comparable
	~uint8 | ~uint16
}](ws []word[T], v T) string {
	for _, w := range ws {
		if w.v == v {
			return w.s
		}
	}
	return strconv.Itoa(int(v))
}

// parseWord finds s among the words; the error lists them.
func parseWord[T comparable](ws []word[T], s string) (T, error) {
	for _, w := range ws {
		if w.s == s {
			return w.v, nil
		}
	}
	var zero T
	all := make([]string, 0, len(ws))
	for _, w := range ws {
		all = append(all, w.s)
	}
	hint := nearest(s, all)
	if other := synonyms[strings.ToLower(s)]; slices.Contains(all, other) {
		hint = other
	} else if b, err := parseBool(s); err == nil && b && slices.Contains(all, "always") {
		hint = all[0]
	}
	return zero, didYouMean(hint, "%q is not one of %s", ib.Clip(s), strings.Join(all, ", "))
}

// synonyms are words that other programs have for a value.
var synonyms = map[string]string{
	"ibnetsm": "builtin", "ethernet": "eth", "ether": "eth", "roce": "eth", "infiniband": "ib", "up": "enable", "down": "disable",
	"ud": "datagram", "rc": "connected", "cm": "connected",
}

func wordList[T comparable](ws []word[T]) []string {
	out := make([]string, 0, len(ws))
	for _, w := range ws {
		out = append(out, w.s)
	}
	return out
}

// YesNo is a boolean as a unit file has it.
func YesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

var (
	modeWords       = []word[Mode]{{ModeDatagram, "datagram"}, {ModeConnected, "connected"}, {ModeAuto, "auto"}}
	activationWords = []word[ActivationPolicy]{
		{ActivationUp, "up"}, {ActivationAlwaysUp, "always-up"}, {ActivationManual, "manual"},
		{ActivationAlwaysDown, "always-down"}, {ActivationDown, "down"}, {ActivationBound, "bound"},
	}
	// operStates are in rising order.
	operStates = []OperState{
		OperMissing, OperOff, OperNoCarrier, OperDormant, OperDegradedCarrier, OperCarrier, OperDegraded, OperEnslaved, OperRoutable,
	}
	operWords           = wordsOf(operStates)
	requiredFamilyWords = []word[Family]{{FamilyAny, "any"}, {FamilyIPv4, "ipv4"}, {FamilyIPv6, "ipv6"}, {FamilyBoth, "both"}}
	ruleFamilyWords     = []word[Family]{{FamilyIPv4, "ipv4"}, {FamilyIPv6, "ipv6"}, {FamilyBoth, "both"}}
	linkLocalWords      = []word[LinkLocal]{{LinkLocalYes, "yes"}, {LinkLocalNo, "no"}, {LinkLocalIPv4, "ipv4"}, {LinkLocalIPv6, "ipv6"}}
	addrGenWords        = []word[AddrGen]{{AddrGenEUI64, "eui64"}, {AddrGenNone, "none"},
		{AddrGenStablePrivacy, "stable-privacy"}, {AddrGenRandom, "random"}}
	privacyWords = []word[PrivacyExtensions]{{PrivacyYes, "yes"}, {PrivacyNo, "no"},
		{PrivacyPreferPublic, "prefer-public"}, {PrivacyKernel, "kernel"}}
	useDomainsWords = []word[UseDomains]{{UseDomainsYes, "yes"}, {UseDomainsNo, "no"}, {UseDomainsRoute, "route"}}
	rpfWords        = []word[ReversePathFilter]{{ReversePathNo, "no"}, {ReversePathStrict, "strict"}, {ReversePathLoose, "loose"}}
	keepWords       = []word[KeepConfiguration]{
		{KeepNo, "no"}, {KeepYes, "yes"}, {KeepStatic, "static"}, {KeepDynamicOnStop, "dynamic-on-stop"},
		{KeepDynamic, "dynamic"}, {KeepDynamicOnStop, "dhcp-on-stop"}, {KeepDynamic, "dhcp"},
	}
	supportWords = []word[Support]{
		{SupportNo, "no"}, {SupportYes, "yes"}, {SupportResolve, "resolve"}, {SupportOpportunistic,
			"opportunistic"}, {SupportAllowDowngrade, "allow-downgrade"},
	}
	resolveWords = []word[Support]{{SupportYes, "yes"}, {SupportNo, "no"}, {SupportResolve, "resolve"}}
	tlsWords     = []word[Support]{{SupportYes, "yes"}, {SupportNo, "no"}, {SupportOpportunistic, "opportunistic"}}
	dnssecWords  = []word[Support]{{SupportYes, "yes"}, {SupportNo, "no"}, {SupportAllowDowngrade, "allow-downgrade"}}
	scopeWords   = []word[Scope]{{ScopeGlobal, "global"}, {ScopeSite, "site"}, {ScopeLink, "link"}, {ScopeHost, "host"},
		{ScopeNowhere, "nowhere"}}
	dadWords        = []word[DAD]{{DADIPv4, "ipv4"}, {DADIPv6, "ipv6"}, {DADBoth, "both"}, {DADNone, "none"}}
	preferenceWords = []word[RoutePreference]{{PreferenceLow, "low"}, {PreferenceMedium, "medium"}, {PreferenceHigh, "high"}}
	routeTypeWords  = []word[RouteType]{
		{RouteUnicast, "unicast"}, {RouteLocal, "local"}, {RouteBroadcast, "broadcast"}, {RouteAnycast, "anycast"},
		{RouteMulticast, "multicast"}, {RouteBlackhole, "blackhole"}, {RouteUnreachable, "unreachable"},
		{RouteProhibit, "prohibit"}, {RouteThrow, "throw"}, {RouteNAT, "nat"}, {RouteXResolve, "xresolve"},
	}
	ruleTypeWords = []word[RuleType]{
		{RuleTable, "table"}, {RuleGoTo, "goto"}, {RuleNop, "nop"},
		{RuleBlackhole, "blackhole"}, {RuleUnreachable, "unreachable"}, {RuleProhibit, "prohibit"},
	}
	manageWords       = []word[Manage]{{ManageAuto, "auto"}, {ManageAlways, "always"}, {ManageNo, "no"}}
	enforcementWords  = []word[Enforcement]{{EnforceBoth, "both"}, {EnforceIn, "in"}, {EnforceOut, "out"}, {EnforceOff, "off"}}
	reregisterWords   = []word[Reregister]{{ReregisterAuto, "auto"}, {ReregisterAlways, "always"}, {ReregisterNever, "never"}}
	engineWords       = []word[Engine]{{EngineBuiltin, "builtin"}, {EngineOpenSM, "opensm"}}
	portTypeWords     = []word[PortType]{{PortTypeIB, "ib"}, {PortTypeEth, "eth"}, {PortTypeAuto, "auto"}}
	trustWords        = []word[Trust]{{TrustPCP, "pcp"}, {TrustDSCP, "dscp"}}
	vlanProtocolWords = []word[VLANProtocol]{{VLAN8021Q, "802.1q"}, {VLAN8021AD, "802.1ad"}, {VLAN8021Q, "802.1Q"}, {VLAN8021AD, "802.1AD"}}
	softDriverWords   = []word[SoftDriver]{{SoftRXE, "rxe"}, {SoftSIW, "siw"}}
	vfLinkWords       = []word[VFLinkState]{{VFLinkAuto, "auto"}, {VFLinkEnable, "enable"}, {VFLinkDisable, "disable"}}
	lifetimeWords     = []word[Lifetime]{{Forever, "forever"}, {Forever, "infinity"}, {0, "0"}}
)

// String prints the word of the unit file.
func (m Mode) String() string             { return printWord(modeWords, m) }
func (a ActivationPolicy) String() string { return printWord(activationWords, a) }

// Rank orders operational states: a higher one is closer to routable, -1 is none.
func (o OperState) Rank() int { return slices.Index(operStates, o) }

func wordsOf[T ~string](vs []T) (out []word[T]) {
	for _, v := range vs {
		out = append(out, word[T]{v, string(v)})
	}
	return out
}

// ParseOperState reads networkctl's words.
func ParseOperState(s string) (OperState, error) { return parseWord(operWords, s) }

// String prints the word of the unit file.
func (f Family) String() string            { return printWord(requiredFamilyWords, f) }
func (l LinkLocal) String() string         { return printWord(linkLocalWords, l) }
func (a AddrGen) String() string           { return printWord(addrGenWords, a) }
func (p PrivacyExtensions) String() string { return printWord(privacyWords, p) }
func (r ReversePathFilter) String() string { return printWord(rpfWords, r) }
func (k KeepConfiguration) String() string { return printWord(keepWords, k) }

// String prints the word of the unit file, which is also resolvectl's.
func (s Support) String() string { return printWord(supportWords, s) }

// String prints the scope's name, or its number.
func (s Scope) String() string { return printWord(scopeWords, s) }

// String prints the word of the unit file.
func (d DAD) String() string             { return printWord(dadWords, d) }
func (p RoutePreference) String() string { return printWord(preferenceWords, p) }

// String prints the word of the unit file, which is also ip route's.
func (t RouteType) String() string { return printWord(routeTypeWords, t) }

// String prints the word of the unit file.
func (t RuleType) String() string    { return printWord(ruleTypeWords, t) }
func (m Manage) String() string      { return printWord(manageWords, m) }
func (e Enforcement) String() string { return printWord(enforcementWords, e) }
func (r Reregister) String() string  { return printWord(reregisterWords, r) }
func (e Engine) String() string      { return printWord(engineWords, e) }

// String prints the word of the unit file, which is also devlink's.
func (t PortType) String() string { return printWord(portTypeWords, t) }

// String prints the word of the unit file.
func (t Trust) String() string        { return printWord(trustWords, t) }
func (d UseDomains) String() string   { return printWord(useDomainsWords, d) }
func (p VLANProtocol) String() string { return printWord(vlanProtocolWords, p) }

// String prints the driver's name as rdma link add takes it.
func (d SoftDriver) String() string { return printWord(softDriverWords, d) }

// String prints the word of ip link set vf state.
func (s VFLinkState) String() string { return printWord(vfLinkWords, s) }

// String prints "forever" or the seconds.
func (l Lifetime) String() string {
	if l == Forever {
		return "forever"
	}
	return strconv.FormatUint(uint64(l), 10)
}
