package partition

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// ParseRule reads our one-line form, the value of a Partition= line in a unit
// file:
//
//	0x8001 Name=storage Members=0x0002c903000abcde,SELF MTU=4096 Rate=100Gb/s SL=1 IPoIB=yes
//
// The P_Key comes first; its high bit is the membership of members that name
// none (0x8001 full, 0x0001 limited). Members= takes the words and GUIDs of
// partitions.conf, each with an optional =full, =limited or =both, and defaults
// to ALL. IPoIB= defaults to yes. Words are separated by white space or, where a
// command line may not have any, by semicolons. The error is one sentence
// without a position: the unit's reader knows the line.
func ParseRule(s string) (Partition, error) {
	words := ruleWords(s)
	if len(words) == 0 {
		return Partition{}, errors.New("a partition needs a P_Key, as in Partition=0x8001 Members=ALL")
	}
	n, err := strconv.ParseUint(words[0], 0, 16)
	if err != nil || !ib.PKey(n).IsValid() {
		return Partition{}, fmt.Errorf("P_Key %s is not a number from 0x0001 to 0xffff with low 15 bits that are not zero", quote(words[0]))
	}
	p := Partition{PKey: ib.PKey(n).Base(), IPoIB: true}
	def := Limited
	if ib.PKey(n).Full() {
		def = Full
	}
	members := false
	for _, w := range words[1:] {
		key, val, ok := strings.Cut(w, "=")
		if !ok || val == "" {
			return Partition{}, fmt.Errorf("%s is not of the form Name=value", quote(w))
		}
		switch key {
		case "Name":
			p.Name = val
		case "IPoIB", "Index0":
			b, ok := boolWords[strings.ToLower(val)]
			if !ok {
				return Partition{}, fmt.Errorf("%s=%s is neither yes nor no", key, quote(val))
			}
			if key == "IPoIB" {
				p.IPoIB = b
			} else {
				p.Index0 = b
			}
		case "Members":
			members = true
			for m := range strings.SplitSeq(val, ",") {
				mem, err := parseMember(m, def)
				if err != nil {
					return Partition{}, err
				}
				p.Members = append(p.Members, mem)
			}
		case "MTU":
			p.Params.MTU, err = ParseMTU(val)
		case "Rate":
			p.Params.Rate, err = ParseRate(val)
		case "SL":
			var n uint64
			n, err = number(val, 15)
			p.Params.SL = ib.SL(n)
		case "QKey":
			var n uint64
			n, err = number(val, 1<<32-1)
			p.Params.QKey = ib.QKey(n)
		case "TClass":
			var n uint64
			n, err = number(val, 255)
			p.Params.TClass = uint8(n)
		case "Scope":
			var n uint64
			if n, err = number(val, 15); err == nil && n == 0 {
				err = errors.New("scope 0 is reserved; 2 is the subnet")
			}
			p.Params.Scopes |= 1 << n
		default:
			return Partition{}, fmt.Errorf("unknown word %s; known are Name, Members, IPoIB, Index0, MTU, Rate, SL, QKey, TClass, Scope", quote(key))
		}
		if err != nil {
			return Partition{}, fmt.Errorf("%s=%s: %w", key, ib.Clip(val), err)
		}
	}
	if !members {
		p.Members = []Member{{Select: All, Membership: def}}
	}
	return p, nil
}

func ruleWords(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' || r == ';' })
}

var boolWords = map[string]bool{"yes": true, "true": true, "on": true, "1": true, "no": false, "false": false, "off": false, "0": false}

func parseMember(s string, def Membership) (Member, error) {
	name, mem, has := strings.Cut(s, "=")
	m := Member{Membership: def}
	if has {
		var ok bool
		if m.Membership, ok = membership(mem); !ok {
			return m, fmt.Errorf("membership %s of %s is none of full, limited, both", quote(mem), quote(name))
		}
	}
	if sel, ok := selectNames[strings.ToUpper(name)]; ok {
		m.Select = sel
		return m, nil
	}
	g, err := parsePortGUID(name)
	if err != nil {
		return m, fmt.Errorf("%w: write a port GUID such as 0x0002c903000abcde, or ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF", err)
	}
	m.GUID = g
	return m, nil
}

// Rules is the configuration of a unit's partition rules, preceded by the rule of
// the default partition. Without a rule for the default partition every port is
// its full member and it carries IPoIB, as in Default.
func Rules(rules ...Partition) Config {
	c := Config{}
	if len(rules) == 0 {
		return Default()
	}
	has := false
	for _, r := range rules {
		has = has || r.PKey.Base() == DefaultPKey
	}
	if has {
		c.Merge(Partition{Name: "Default", PKey: DefaultPKey,
			Members: []Member{{Select: All, Membership: Limited}, {Select: Self, Membership: Full}}})
	} else {
		c = Default()
	}
	c.Merge(rules...)
	return c
}
