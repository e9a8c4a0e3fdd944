package importer

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// valueKeys are how the formats write a value: a second, small reader, which knows
// neither links nor precedence. The last group is the value.
var valueKeys = []struct {
	kind, format string // "" is every format
	re           *regexp.Regexp
	read         func(string) (string, bool)
}{
	{"mode", "ifcfg", regexp.MustCompile(`^(?:export )?CONNECTED_MODE=["']?(\w+)`), asMode},
	{"mode", "openib", regexp.MustCompile(`^(?:export )?SET_IPOIB_CM=["']?(\w+)`), asMode},
	{"mode", "", regexp.MustCompile(`\b(connected|datagram)\b`), asMode},
	{"mtu", "", regexp.MustCompile(`(?i)(?:^|[^-_a-z])(?:ipoib_)?mtu(?:bytes)?(?:\[[^\]]*\])?["']?\s*[ =:]\s*["']?(\d+[KM]?)\b`), asNumber},
	{"mtu", "", regexp.MustCompile(`echo (\d+) *(?:>|\| *tee) *\S*/mtu\b`), asNumber},
	{"mtu", "netplan", regexp.MustCompile(`ipv6-mtu: *(\d+)`), asNumber},
	{"bond", "", regexp.MustCompile(`\b(?:Mode=|(?:bond-)?mode["']?[=: ] *["']?)(active-backup|1)\b`), asBondMode},
	{"bond", "", regexp.MustCompile(`(?:\b|_)(?:miimon|updelay|downdelay|up-delay|down-delay|mii-monitor-interval)["']?[=: ] *["']?(\w+)`),
		asMillis},
	{"key", "ifcfg", regexp.MustCompile(`^(?:export )?PKEY_ID=["']?(\w+)`), asKey(0)},
	{"key", "keyfile", regexp.MustCompile(`^p-key=(\w+)`), asKey(0)},
	{"key", "wicked", regexp.MustCompile(`^IPOIB_PKEY=["']?(\w+)`), asKey(16)},
	{"key", "networkd", regexp.MustCompile(`^PartitionKey=(\w+)`), asKey(0)},
	{"key", "nmstate", regexp.MustCompile(`pkey["']?: *["']?(\w+)`), asKey(0)},
	{"key", "", regexp.MustCompile(`echo "?(\w+)"? *> *\S*/create_child`), asKey(0)},
	{"key", "", regexp.MustCompile(`type ipoib\b.* pkey (\w+)`), asKey(0)},
	{"metric", "keyfile", regexp.MustCompile(`^route-metric=(\w+)`), func(s string) (string, bool) {
		n, err := strconv.ParseUint(s, 0, 32)
		return fmt.Sprint(n), err == nil
	}},
	{"metric", "ifcfg netplan wicked networkd nmstate interfaces script",
		regexp.MustCompile(`(?i)metric["']?(?:[=:]| +)\s*["']?(\d+)\b`), asNumber},
	{"table", "", regexp.MustCompile(`(?i)(?:^|[ ,{])table["']?(?:[=:]| +)\s*["']?(\d+)\b`), asNumber},
}

func asMode(s string) (string, bool) {
	switch strings.ToLower(s) {
	case "yes", "y", "true", "t", "1", "connected":
		return "connected", true
	case "no", "n", "false", "f", "0", "datagram":
		return "datagram", true
	}
	return s, s == "auto"
}

func asBondMode(string) (string, bool) { return "active-backup", true }

func asMillis(s string) (string, bool) {
	if number(s) {
		s += "ms"
	}
	return s, true
}

func asNumber(s string) (string, bool) {
	unit := 1
	if d, ok := strings.CutSuffix(s, "K"); ok {
		s, unit = d, 1024
	}
	n, err := strconv.Atoi(s)
	return fmt.Sprint(n * unit), err == nil
}

func asKey(base int) func(string) (string, bool) {
	return func(s string) (string, bool) {
		if base == 16 {
			s = strings.TrimPrefix(s, "0x")
		}
		n, err := strconv.ParseUint(s, base, 16)
		return fmt.Sprintf("0x%04x", n|0x8000), err == nil
	}
}

var addressWord = regexp.MustCompile(`[0-9a-fA-F.:]+(?:/\d+)?`)

// addressesIn are the IP addresses of a text, without lengths, and without netmasks.
func addressesIn(text string) []string {
	var out []string
	for _, w := range addressWord.FindAllString(text, -1) {
		w, _, _ = strings.Cut(strings.Trim(w, ":"), "/")
		a, err := netip.ParseAddr(w)
		if err != nil || a.IsUnspecified() {
			continue
		}
		if _, mask := maskBits(w); !mask {
			out = append(out, a.String())
		}
	}
	return out
}

func unitValues(t *testing.T, us []Unit) map[string][]string {
	out := map[string][]string{}
	add := func(kind, v string) { out[kind] = append(out[kind], v) }
	for _, u := range us {
		for l := range strings.Lines(u.Text) {
			k, v, ok := strings.Cut(strings.TrimSpace(l), "=")
			if !ok || strings.HasPrefix(k, "#") {
				continue
			}
			switch k {
			case "Mode":
				add(map[bool]string{true: "bond", false: "mode"}[strings.Contains(v, "-")], v)
			case "MIIMonitorSec", "UpDelaySec", "DownDelaySec":
				add("bond", v)
			case "MTUBytes", "IPv6MTUBytes":
				n, _ := asNumber(v)
				add("mtu", n)
			case "PartitionKey":
				add("key", v)
			case "Metric", "RouteMetric", "Table", "RouteTable":
				n, err := strconv.ParseUint(v, 0, 32)
				if err != nil && v != "main" && v != "local" && v != "default" {
					t.Errorf("%s: %s", u.Name, l)
				}
				add(map[bool]string{true: "table", false: "metric"}[strings.HasSuffix(k, "Table")], fmt.Sprint(n))
			case "Address", "Gateway", "Destination", "DNS", "PreferredSource", "Peer", "From", "To", "MultiPathRoute", "Broadcast", "DenyList",
				"AllowList":
				for _, a := range addressesIn(v) {
					add("address", a)
				}
			}
		}
	}
	return out
}

func sourceValues(out map[string][]string, format, line string) {
	for _, p := range valueKeys {
		if p.format != "" && !strings.Contains(p.format, format) {
			continue
		}
		for _, m := range p.re.FindAllStringSubmatch(line, -1) {
			if v, ok := p.read(m[len(m)-1]); ok {
				out[p.kind] = append(out[p.kind], v)
			}
		}
	}
	out["address"] = append(out["address"], addressesIn(line)...)
}

var (
	anyNumber = regexp.MustCompile(`\d+`)
	nameOfKey = regexp.MustCompile(`\.([0-9a-fA-F]{4})\b`)
)

// The account of lines does not see a wrong value. So what a second reader finds in
// the lines that count as converted is in the units, and what is in the units is
// somewhere in the sources.
func TestValuesOfConvertedLines(t *testing.T) {
	found := map[string]int{}
	for _, s := range samples(t) {
		r := Import(s.host, s.sources)
		units := unitValues(t, r.Units)
		converted, all := map[string][]string{}, map[string][]string{
			"table":  {"0", "253", "254", "255"}, // main, local, default
			"metric": {"0", "100", "150", "300"}} // wicked's, netplan's, NetworkManager's of InfiniBand and bonds
		for _, l := range r.Lines {
			i := slices.IndexFunc(s.sources, func(x Source) bool { return x.Path == l.Path })
			format := Format(s.sources[i])
			if l.Line == 0 || format == "opensm" || format == "partitions" {
				continue
			}
			raw := strings.Split(s.sources[i].Text, "\n")[l.Line-1]
			sourceValues(all, format, raw)
			for _, n := range anyNumber.FindAllString(raw, -1) {
				for _, kind := range []string{"metric", "table"} {
					v, _ := asNumber(n)
					all[kind] = append(all[kind], v)
				}
			}
			for _, m := range nameOfKey.FindAllStringSubmatch(raw+" "+l.Path, -1) {
				k, _ := asKey(16)(m[1])
				all["key"] = append(all["key"], k)
			}
			if l.Fate == Carried {
				sourceValues(converted, format, raw)
			}
		}
		for _, kind := range []string{"address", "mode", "mtu", "key", "metric", "table", "bond"} {
			found[kind] += len(converted[kind])
			for _, v := range converted[kind] {
				if !slices.Contains(units[kind], v) && !slices.Contains(strings.Fields(valueExcept[s.name]), v) {
					t.Errorf("%s: %s %s of a line that counts as converted is not in the units", s.name, kind, v)
				}
			}
			for _, v := range units[kind] {
				if !slices.Contains(all[kind], v) {
					t.Errorf("%s: %s %s of the units is not in the sources", s.name, kind, v)
				}
			}
		}
	}
	t.Log(found)
	for _, kind := range []string{"address", "mode", "mtu", "key", "metric", "table", "bond"} {
		if found[kind] < 8 {
			t.Errorf("only %d values of the kind %s", found[kind], kind)
		}
	}
}

// valueExcept are gateways of lines that are converted without them: there is to be no
// default route.
var valueExcept = map[string]string{"keyfile-never-default": "10.0.0.254", "keyfile-noroute": "10.0.0.254", "keyfile-words": "10.1.0.254"}

// The files that a tool reads for all links are read with that of a link.
func TestRelatedFilesOfAllLinks(t *testing.T) {
	for p, want := range map[string]string{
		"/etc/NetworkManager/system-connections/ib0.nmconnection": "/etc/NetworkManager/conf.d/*.conf",
		"/etc/sysconfig/network-scripts/ifcfg-ib0":                "/etc/NetworkManager/NetworkManager.conf",
		"/etc/sysconfig/network/ifcfg-ib0":                        "/etc/sysconfig/network/dhcp",
		"/etc/nmstate/10.yml":                                     "/etc/NetworkManager/conf.d/*.conf",
		"/etc/systemd/network/10-ib0.network":                     "/etc/systemd/networkd.conf",
	} {
		if got := Related(Source{Path: p}); !slices.Contains(got, want) {
			t.Errorf("%s: %q without %s", p, got, want)
		}
	}
}

// No key of opensm is shown, in whatever line it is, and the command of the note copies those in force.
func TestKeysAreNotShown(t *testing.T) {
	for _, s := range samples(t) {
		if s.name != "opensm-secret" {
			continue
		}
		r := Import(s.host, s.sources)
		if all := fmt.Sprint(r); strings.Contains(all, "5ec4e7") || !strings.Contains(all, "#M_Key is a word here") {
			t.Error(all)
		}
		_, command, _ := strings.Cut(strings.Join(r.Notes, "\n"), ": sed -nE '")
		script, _, _ := strings.Cut(command, "'")
		c := exec.Command("sed", "-nE", script)
		c.Stdin = strings.NewReader(s.sources[0].Text)
		if out, err := c.Output(); err != nil || string(out) != "MKey=0x5ec4e7\nSMKey=0x5ec4e7\n" {
			t.Errorf("%q, %v", out, err)
		}
		return
	}
	t.Error("no sample")
}
