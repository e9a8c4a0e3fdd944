package bus

import (
	"bytes"
	"encoding/json"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn"
	"ibnetworkd/link"
)

// dict is a{sv} with the keys that v has as JSON: strings as s, numbers as t, truth values
// as b, lists of strings as as, objects as a{sv} and lists of objects as aa{sv}.
func dict(v any) map[string]dbus.Variant {
	out := map[string]dbus.Variant{}
	b, err := json.Marshal(v)
	if err != nil {
		return out
	}
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return out
	}
	return dictOf(tree)
}

func dictOf(tree map[string]any) map[string]dbus.Variant {
	out := make(map[string]dbus.Variant, len(tree))
	for key, v := range tree {
		switch x := v.(type) {
		case string:
			out[key] = dbus.MakeVariant(busconn.Clean(x))
		case bool:
			out[key] = dbus.MakeVariant(x)
		case json.Number:
			if n, err := x.Int64(); err == nil && n >= 0 {
				out[key] = dbus.MakeVariant(uint64(n))
			}
		case map[string]any:
			out[key] = dbus.MakeVariant(dictOf(x))
		case []any:
			var texts []string
			var dicts []map[string]dbus.Variant
			for _, e := range x {
				switch e := e.(type) {
				case string:
					texts = append(texts, busconn.Clean(e))
				case map[string]any:
					dicts = append(dicts, dictOf(e))
				}
			}
			if len(dicts) > 0 {
				out[key] = dbus.MakeVariant(dicts)
			} else if len(texts) > 0 {
				out[key] = dbus.MakeVariant(texts)
			}
		}
	}
	return out
}

// dhcpOf has the DHCP clients of a link by family.
func dhcpOf(s link.Status) map[string]dbus.Variant {
	out := map[string]dbus.Variant{}
	for family, d := range map[string]*link.DHCP{"ipv4": s.DHCP, "ipv6": s.DHCP6} {
		if d != nil {
			out[family] = dbus.MakeVariant(dict(d))
		}
	}
	return out
}

func probesOf(s link.Status) []map[string]dbus.Variant {
	out := make([]map[string]dbus.Variant, len(s.Probes))
	for i, p := range s.Probes {
		out[i] = dict(p)
	}
	return out
}
