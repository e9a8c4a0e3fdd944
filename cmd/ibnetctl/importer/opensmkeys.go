package importer

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// whyOpenSM is the account of a setting of opensm that has its default.
const whyOpenSM = "opensm's default"

// AtDefault is how many settings of opensm in lines have their default, by path.
func AtDefault(lines []Line) map[string]int {
	n := map[string]int{}
	for _, l := range lines {
		if l.Fate == Unneeded && l.Why == whyOpenSM {
			n[l.Path]++
		}
	}
	return n
}

// keysFile is where the keys of the subnet manager go.
const keysFile = "/etc/ibnetworkd/sm.keys"

// opensmKeys are the settings of opensm whose values are not shown.
var opensmKeys = []string{"m_key", "sm_key", "sa_key", "cc_key"}

// keySetting is a line with a key, also one that is commented out, and keyOption an option of
// opensm with one. In comments capitals are prose.
var (
	keySetting = regexp.MustCompile(`^((?i:s?m_key|sa_key|cc_key)|[#;][#;\s]*(?:s?m_key|sa_key|cc_key)|S?MKey|SAKey)[^0-9A-Za-z_].*`)
	keyOption  = regexp.MustCompile(`((?:^|[\s"'=])(?:--smkey|--cc_key|-k))[\s=]*["']?[0-9][^\s"']*`)
	guidLine   = regexp.MustCompile(`^(\S+)\s.*`)
)

// withoutKeys is the text of an item as it is shown.
func (f *file) withoutKeys(text string) string {
	if f.format == "guid2mkey" {
		return guidLine.ReplaceAllString(text, "$1 ...")
	}
	return keyOption.ReplaceAllString(keySetting.ReplaceAllString(text, "$1 ..."), "$1 ...")
}

// opensmText are the settings without an equivalent, with their defaults and the reason.
//
//go:embed opensm.txt
var opensmText string

// opensmSetting is the line of opensmText for a setting.
func opensmSetting(key string) (defaults []string, why string, ok bool) {
	for line := range strings.Lines(opensmText) {
		line = strings.TrimSuffix(line, "\n")
		if rest, reason := strings.CutPrefix(line, "= "); reason {
			why = rest
		} else if k, v, _ := strings.Cut(line, " "); k == key {
			return strings.Split(v, "|"), why, true
		}
	}
	return nil, "", false
}

// opensmLine is the setting of a line, and its value without quotes.
func opensmLine(text string) (key, value string) {
	key, value, ok := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !ok || strings.ContainsAny(key, " \t") {
		key, value, _ = strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	}
	value = strings.TrimSpace(value)
	if w, rest, closed := word(value); closed && (strings.TrimSpace(rest) == "" || strings.HasPrefix(strings.TrimSpace(rest), "#")) {
		value = w
	}
	return strings.ToLower(key), value
}

// same reports whether two values of opensm are the same number or word.
func same(a, b string) bool {
	x, err := strconv.ParseUint(a, 0, 64)
	y, err2 := strconv.ParseUint(b, 0, 64)
	return a == b || err == nil && err2 == nil && x == y
}

// more carries the settings over that are about the fabric, and not about files.
func (m *manager) more(it *item, key, value string) {
	number := func(def uint64, to string, text func(n uint64) string) {
		switch n, err := strconv.ParseUint(value, 0, 32); {
		case err != nil:
			it.left(whyValue)
		case n == def:
			it.unneeded(whyOpenSM)
		default:
			m.set(to, text(n), it)
		}
	}
	plain := func(n uint64) string { return strconv.FormatUint(n, 10) }
	l := managerLine{key, value, it}
	switch key {
	case "m_key", "sm_key", "sa_key":
		m.keys = append(m.keys, l)
	case "m_key_protection_level", "m_key_lease_period":
		m.guard = append(m.guard, l)
	case "part_enforce", "no_partition_enforcement":
		m.enforce = append(m.enforce, l)
	case "no_clients_rereg":
		switch value {
		case "TRUE":
			m.set("Reregister", "never", it)
		case "FALSE":
			it.unneeded(whyOpenSM)
		default:
			it.left(whyValue)
		}
	case "sweep_interval":
		number(10, "SweepSec", plain)
	case "transaction_timeout":
		number(200, "TimeoutSec", func(n uint64) string { return (time.Duration(n) * time.Millisecond).String() })
	case "transaction_retries":
		number(3, "Retries", plain)
	case "max_wire_smps":
		number(4, "Window", plain)
	case "daemon":
		switch value {
		case "TRUE":
			it.unneeded("systemd runs ibnetsm")
		case "FALSE":
			it.unneeded(whyOpenSM)
		default:
			it.left(whyValue)
		}
	default:
		defaults, why, ok := opensmSetting(key)
		switch {
		case slices.ContainsFunc(defaults, func(d string) bool { return same(d, value) }):
			it.unneeded(whyOpenSM)
		case strings.HasPrefix(key, "cc_ca_cong_setting_") && strings.HasSuffix(strings.TrimSpace(value), " 0"):
			it.unneeded(whyOpenSM) // of another service level
		case ok:
			it.left(why)
		}
	}
}

// opensmSecrets carries the keys over, with a command that copies them to a file that only
// ibnetsm can read: they are not written to a unit, nor to the screen. What protects the
// ports with an M_Key is written out, because the defaults differ.
func (im *importer) opensmSecrets() {
	m := &im.manager
	var mkey *item
	commands := map[string][]string{}
	var order []string
	for _, l := range m.keys {
		n, err := strconv.ParseUint(l.value, 0, 64)
		switch {
		case err != nil:
			l.it.left("not a number of 64 bits")
			continue
		case l.key == "m_key" && n == 0, l.key != "m_key" && n == 1:
			l.it.unneeded(whyOpenSM)
			continue
		case l.key == "sa_key" && n == 0:
			l.it.left("0 is the key of requests that are not trusted; ibnetsm has 1 without SAKey=")
			continue
		case l.key == "m_key":
			mkey = l.it
		}
		m.set("KeyFile", keysFile, l.it)
		to := map[string]string{"m_key": "MKey", "sm_key": "SMKey", "sa_key": "SAKey"}[l.key]
		path := l.it.file.path
		if commands[path] == nil {
			order = append(order, path)
		}
		commands[path] = append(commands[path], fmt.Sprintf(`s/^[[:space:]]*%s[[:space:]=]+[^0-9]?([0-9][0-9A-Za-z]*).*/%s=\1/p`, l.key, to))
	}
	for _, path := range order {
		im.note("write the keys of %s into %s, which only ibnetsm can read: sed -nE '%s' '%s' | install -D -o ibnetsm -m 0600 /dev/stdin %s",
			path, keysFile, strings.Join(commands[path], "; "), strings.ReplaceAll(path, "'", `'\''`), keysFile)
	}
	have := map[string]bool{}
	for _, l := range m.guard {
		n, err := strconv.ParseUint(l.value, 0, 16)
		switch {
		case err != nil:
			l.it.left(whyValue)
		case mkey == nil && n == 0:
			l.it.unneeded(whyOpenSM)
		case mkey == nil:
			l.it.left("it has no effect without m_key")
		default:
			have[l.key] = true
			m.protect(l.key, n, l.it)
		}
	}
	for _, key := range []string{"m_key_protection_level", "m_key_lease_period"} {
		if mkey != nil && !have[key] {
			m.protect(key, 0, mkey)
		}
	}
}

// protect sets what an M_Key protects, or for how many seconds.
func (m *manager) protect(key string, n uint64, it *item) {
	if key == "m_key_lease_period" {
		m.set("MKeyLeaseSec", strconv.FormatUint(n, 10), it)
	} else {
		m.set("MKeyProtect", strconv.FormatUint(n, 10), it)
	}
}

// enforcement converts where switches check P_Keys: no_partition_enforcement overrides part_enforce.
func (m *manager) enforcement() {
	var off *item
	for _, l := range m.enforce {
		if l.key == "no_partition_enforcement" && l.value == "TRUE" {
			off = l.it
			m.set("PartitionEnforcement", "off", l.it)
		}
	}
	for _, l := range m.enforce {
		switch {
		case l.it == off:
		case l.key == "no_partition_enforcement" && l.value == "FALSE", l.value == "both" && off == nil && l.key == "part_enforce":
			l.it.unneeded(whyOpenSM)
		case l.key == "no_partition_enforcement", !slices.Contains([]string{"both", "in", "out", "off"}, l.value):
			l.it.left(whyValue)
		case off != nil && l.value != "off":
			l.it.left("not used: " + off.at() + " switches it off")
		default:
			m.set("PartitionEnforcement", l.value, l.it)
		}
	}
}
