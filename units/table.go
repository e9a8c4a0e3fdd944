package units

import (
	"fmt"
	"net/netip"
	"strings"

	"ibnetworkd/ib"
)

var boolWords = []string{"yes", "no"}

func boolKey[S any](name string, networkd bool, field func(*S) *Value[bool]) Key {
	return Key{Name: name, Values: boolWords, Networkd: networkd, apply: scalar(field, parseBool)}
}

func numKey[S any, T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](
	name string, lo, hi uint64, networkd bool, field func(*S) *Value[T],
) Key {
	return Key{Name: name, Syntax: fmt.Sprintf("%d-%d", lo, hi), Networkd: networkd, apply: scalar(field, number[T](lo, hi))}
}

func enumKey[S any, T comparable](name string, networkd bool, ws []word[T], field func(*S) *Value[T]) Key {
	return Key{Name: name, Syntax: strings.Join(wordList(ws), "|"), Values: wordList(ws), Networkd: networkd,
		apply: scalar(field, enum(ws))}
}

// prefixValue is a parser for networks: host bits are cleared with a caution.
func prefixValue(s string) (netip.Prefix, error) {
	pfx, _, err := parsePrefix(s)
	if err != nil {
		return pfx, err
	}
	if m := pfx.Masked(); m != pfx {
		return m, &caution{fmt.Sprintf("%q has host bits set", ib.Clip(s)), fmt.Sprintf("it is read as %s", m)}
	}
	return pfx, nil
}

// addressValue is a parser for an address with its prefix length.
func addressValue(s string) (netip.Prefix, error) {
	pfx, bare, err := parsePrefix(s)
	if err != nil {
		return pfx, percentField(s, err)
	}
	a := pfx.Addr()
	switch {
	case a.IsUnspecified():
		return pfx, fmt.Errorf("%q requests an address from a pool, which is not supported; write the address", ib.Clip(s))
	case a.IsMulticast():
		return pfx, fmt.Errorf("%q is a multicast address, which a link cannot have", ib.Clip(s))
	case a.Is4() && a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return pfx, fmt.Errorf("%q is the broadcast address", ib.Clip(s))
	case bare:
		return pfx, &caution{fmt.Sprintf("%q has no prefix length", ib.Clip(s)), fmt.Sprintf("it is read as %s", pfx)}
	case a.Is4() && pfx.Bits() < 31 && pfx.Masked().Addr() == a:
		return pfx, &caution{fmt.Sprintf("%s is the address of the network itself", pfx), "it is used as written"}
	case a.Is4() && pfx.Bits() < 31 && !pfx.Contains(a.Next()):
		return pfx, &caution{fmt.Sprintf("%s is the broadcast address of its network", pfx), "it is used as written"}
	}
	return pfx, nil
}

// percentField is the error of an address with %4 for an octet, with the form that
// a derived address has instead.
func percentField(s string, err error) error {
	words := strings.NewReplacer("%1", "{LINK.1}", "%2", "{LINK.2}", "%3", "{LINK.3}", "%4", "{LINK.4}")
	field := words.Replace(s)
	if _, bad := parseTemplate(field); field == s || bad != nil {
		return err
	}
	return &guess{fmt.Sprintf("%q has no address", ib.Clip(s)),
		fmt.Sprintf("write %s, where LINK is the link with those octets, or {host} for the number in the host name", field)}
}

// partitionKey is parsePKey with a word about keys that were meant to be
// hexadecimal.
func partitionKey(s string) (ib.PKey, error) {
	k, err := parsePKey(s)
	if err == nil {
		err = decimalKey(s, k)
	}
	return k, err
}

// decimalKey warns of a key of four decimal digits; it is nil for any other.
func decimalKey(s string, k ib.PKey) error {
	if len(s) != 4 || strings.Trim(s, "0123456789") != "" {
		return nil
	}
	return &caution{fmt.Sprintf("%s is a decimal number", s),
		fmt.Sprintf("it is read as %s; write 0x%s if it is hexadecimal", k, s)}
}

func buildSchema() []SectionSpec {
	out := []SectionSpec{
		matchSection(), linkSection(), ipoibSection(), partitionSection(), bondSection(), vrfSection(), networkSection(),
		addressSection(), routeSection(), ruleSection(), neighborSection(), nextHopSection(), dhcpv4Section(), dhcpv6Section(),
		acceptRASection(), subnetManagerSection(), portSection(), roceSection(), vlanSection(), macvlanSection(), ipvlanSection(),
		softRoCESection(), virtualFunctionsSection(), vfSection(), modulesSection(),
	}
	for i := range out {
		for k := range out[i].Keys {
			if key := &out[i].Keys[k]; key.Since == "" {
				key.Since = "0.1"
			}
		}
	}
	return out
}

func matchSection() SectionSpec {
	glob := func(name string, networkd bool, field func(*Match) *[]Value[Pattern]) Key {
		return Key{Name: name, List: true, Networkd: networkd, apply: negatable(field, quotedWords, quoteGlob, parseGlob)}
	}
	hw := func(name string, field func(*Match) *[]Value[HWPattern]) Key {
		return Key{Name: name, List: true, Networkd: true, apply: negatable(field, words, plain, parseHWPattern)}
	}
	guid := func(name string, field func(*Match) *[]Value[GUIDPattern]) Key {
		return Key{Name: name, List: true, apply: negatable(field, words, plain, parseGUIDPattern)}
	}
	cond := func(name string, check func(string) error, field func(*Match) *Value[Condition]) Key {
		return Key{Name: name, Networkd: true, apply: condition(field, check)}
	}
	name := glob("Name", true, func(m *Match) *[]Value[Pattern] { return &m.Name })
	name.apply = negatable(func(m *Match) *[]Value[Pattern] { return &m.Name }, words, plain, parseNameGlob)
	layer := Key{Name: "LinkLayer", Values: []string{"InfiniBand", "Ethernet"}, List: true,
		apply: negatable(func(m *Match) *[]Value[LayerPattern] { return &m.LinkLayer }, words, plain, parseLayer)}
	return SectionSpec{
		Name: "Match", open: func(u *Unit) (any, *Section) { return &u.Match, &u.Match.Section },
		Keys: []Key{
			name,
			glob("OriginalName", false, func(m *Match) *[]Value[Pattern] { return &m.OriginalName }),
			hw("MACAddress", func(m *Match) *[]Value[HWPattern] { return &m.MACAddress }),
			hw("PermanentMACAddress", func(m *Match) *[]Value[HWPattern] { return &m.PermanentMACAddress }),
			glob("Path", true, func(m *Match) *[]Value[Pattern] { return &m.Path }),
			glob("Driver", true, func(m *Match) *[]Value[Pattern] { return &m.Driver }),
			glob("Type", true, func(m *Match) *[]Value[Pattern] { return &m.Type }),
			glob("Kind", true, func(m *Match) *[]Value[Pattern] { return &m.Kind }),
			{Name: "Property", List: true, Networkd: true,
				apply: negatable(func(m *Match) *[]Value[PropertyPattern] { return &m.Property }, escapedWords, quoteEscaped,
					parseProperty)},
			glob("IBDevice", false, func(m *Match) *[]Value[Pattern] { return &m.IBDevice }),
			{Name: "Port", List: true,
				apply: negatable(func(m *Match) *[]Value[NumPattern] { return &m.Port }, words, plain, parsePortNumber)},
			guid("PortGUID", func(m *Match) *[]Value[GUIDPattern] { return &m.PortGUID }),
			guid("NodeGUID", func(m *Match) *[]Value[GUIDPattern] { return &m.NodeGUID }),
			glob("BoardID", false, func(m *Match) *[]Value[Pattern] { return &m.BoardID }),
			layer,
			{Name: "PartitionKey", List: true,
				apply: negatable(func(m *Match) *[]Value[PKeyPattern] { return &m.PartitionKey }, words, plain, parsePKeyPattern)},
			cond("Host", checkAny, func(m *Match) *Value[Condition] { return &m.Host }),
			cond("Virtualization", checkWord, func(m *Match) *Value[Condition] { return &m.Virtualization }),
			cond("KernelCommandLine", checkAny, func(m *Match) *Value[Condition] { return &m.KernelCommandLine }),
			cond("KernelVersion", checkVersions, func(m *Match) *Value[Condition] { return &m.KernelVersion }),
			cond("Version", checkVersion, func(m *Match) *Value[Condition] { return &m.Version }),
			cond("Architecture", checkArchitecture, func(m *Match) *Value[Condition] { return &m.Architecture }),
			cond("Credential", checkWord, func(m *Match) *Value[Condition] { return &m.Credential }),
			cond("Firmware", checkFirmware, func(m *Match) *Value[Condition] { return &m.Firmware }),
		},
	}
}
