package units

import (
	"fmt"
	"slices"
	"strings"
)

// Setting is one key of a unit with the values in force, in the syntax of unit
// files.
type Setting struct {
	Section string   `json:"section"`
	Key     string   `json:"key"`
	Values  []string `json:"values"`
}

// Settings lists what the unit says, drop-ins applied, in the order of the
// schema. Sections that repeat have a Setting with an empty Key before each.
// Address= and Gateway= of [Network] appear as [Address] and [Route].
func (u *Unit) Settings() []Setting {
	var out []Setting
	for i := range schema {
		s := &schema[i]
		for _, obj := range u.objects(s.Name) {
			out = append(out, Setting{Section: s.Name})
			for k := range s.Keys {
				key := &s.Keys[k]
				if key.apply.show == nil {
					continue
				}
				if vals := key.apply.show(obj); len(vals) > 0 {
					out = append(out, Setting{s.Name, key.Name, vals})
				}
			}
		}
	}
	return out
}

func (u *Unit) objects(section string) []any {
	one := func(s *Section, obj any) []any {
		if s.Present {
			return []any{obj}
		}
		return nil
	}
	switch section {
	case "Partition":
		return pointers(u.Partitions)
	case "Address":
		return pointers(u.Addresses)
	case "Route":
		return pointers(u.Routes)
	case "RoutingPolicyRule":
		return pointers(u.Rules)
	case "Neighbor":
		return pointers(u.Neighbors)
	case "NextHop":
		return pointers(u.NextHops)
	case "VLAN", "MACVLAN", "IPVLAN":
		return slices.DeleteFunc(pointers(u.VLANs), func(x any) bool { return x.(*VLAN).Kind.Section() != section })
	case "VF":
		return pointers(u.VFs)
	}
	c := *u // u itself is not changed
	obj, head := sectionByName[section].open(&c)
	return one(head, obj)
}

func pointers[T any](s []T) []any {
	out := make([]any, len(s))
	for i := range s {
		out[i] = &s[i]
	}
	return out
}

// Format prints what the unit says as one unit file, in the order of the schema,
// one item on each line. Reading it again gives the same unit.
func (u *Unit) Format() string {
	var b strings.Builder
	for _, s := range u.Settings() {
		if s.Key == "" {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "[%s]\n", s.Section)
			if s.Section == "Match" {
				for i := range u.Match.Invalid {
					fmt.Fprintf(&b, "# %s is not understood, so the unit matches nothing\n", u.Match.invalidWhat(i))
				}
			}
			continue
		}
		for _, v := range s.Values {
			// A backslash at the end would join the next line to this one.
			if len(v)-len(strings.TrimRight(v, `\`)) > 0 {
				v += " "
			}
			fmt.Fprintf(&b, "%s=%s\n", s.Key, v)
		}
	}
	return b.String()
}
