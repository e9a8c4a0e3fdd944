package units

import (
	"errors"
	"fmt"
	"strings"
)

func checkAny(string) error { return nil }

func checkWord(s string) error {
	if strings.ContainsAny(s, blanks) {
		return fmt.Errorf("%q is more than one word", clip(s))
	}
	return nil
}

// architectures are systemd's names (systemd.unit(5), ConditionArchitecture=)
// with the machine field of uname(2) where that is another word.
var architectures = map[string]string{
	"x86_64": "x86-64", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86", "ia64": "ia64",
	"ppc64le": "ppc64-le", "ppcle": "ppc-le", "ppc64": "ppc64", "ppc": "ppc",
	"s390x": "s390x", "s390": "s390", "sparc64": "sparc64", "sparc": "sparc", "mips64": "mips64", "mips": "mips",
	"alpha": "alpha", "armv8l": "arm", "armv7l": "arm", "armv6l": "arm", "armv5tel": "arm", "armv8b": "arm-be", "armv7b": "arm-be",
	"aarch64": "arm64", "aarch64_be": "arm64-be", "sh4": "sh", "sh64": "sh64", "m68k": "m68k", "tilegx": "tilegx", "cris": "cris",
	"arc": "arc", "arceb": "arc-be", "riscv32": "riscv32", "riscv64": "riscv64", "loongarch64": "loongarch64", "parisc": "parisc", "parisc64": "parisc64",
}

// Architecture is systemd's word for the machine field of uname(2), which is
// what HostFacts.Architecture holds.
func Architecture(machine string) string {
	if a, ok := architectures[machine]; ok {
		return a
	}
	return machine
}

func checkArchitecture(s string) error {
	if s == "native" || s == "mips-le" || s == "mips64-le" {
		return nil
	}
	var names []string
	for uname, a := range architectures {
		if a == s {
			return nil
		}
		if uname == s {
			return fmt.Errorf("%q is uname's word; write %s", clip(s), a)
		}
		names = append(names, a)
	}
	if hint := nearest(s, names); hint != "" {
		return fmt.Errorf("%q is not an architecture, did you mean %s?", clip(s), hint)
	}
	return fmt.Errorf("%q is not an architecture (x86-64, arm64, ppc64-le ...)", clip(s))
}

// comparison is one term of KernelVersion= or Version=.
type comparison struct {
	op   string
	text string
}

// comparisonOps are the operators, longer ones first.
var comparisonOps = []string{"!$=", "$=", "<=", ">=", "==", "!=", "<>", "<", ">", "="}

func cutOp(s string) (op, rest string) {
	for _, o := range comparisonOps {
		if r, ok := strings.CutPrefix(s, o); ok {
			return o, r
		}
	}
	return "", s
}

// parseComparisons reads terms "OPERATOR VERSION"; a blank after the operator is
// allowed, and a term without an operator is a glob.
func parseComparisons(s string) ([]comparison, error) {
	var out []comparison
	for rest := s; ; {
		_, end, w, err := unquote(rest, false)
		if err != nil {
			return nil, err
		}
		if w == "" {
			break
		}
		rest = rest[end:]
		op, text := cutOp(w)
		if op == "" {
			op = "$="
		}
		if text = strings.TrimLeft(text, blanks); text == "" {
			_, end, w, err := unquote(rest, false)
			if err != nil {
				return nil, err
			}
			if w == "" {
				return nil, fmt.Errorf("no version stands after %q", op)
			}
			text, rest = w, rest[end:]
		}
		out = append(out, comparison{op, text})
		if len(out) > 64 {
			return nil, errors.New("more than 64 comparisons")
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no comparison")
	}
	return out, nil
}

func checkVersions(s string) error {
	_, err := parseComparisons(s)
	return err
}

// versionSubject cuts the name off Version=.
func versionSubject(s string) (name, comparisons string) {
	for _, n := range []string{"kernel", "systemd", "glibc", "ibnetworkd"} {
		if r, ok := strings.CutPrefix(s, n); ok {
			t := strings.TrimLeft(r, blanks)
			if op, _ := cutOp(t); op != "" || t != r {
				return n, t
			}
		}
	}
	return "kernel", s
}

func checkVersion(s string) error {
	_, c := versionSubject(s)
	return checkVersions(c)
}

func (c comparison) holds(version string) bool {
	switch c.op {
	case "$=":
		return globMatch(c.text, version, false)
	case "!$=":
		return !globMatch(c.text, version, false)
	case "=":
		return version == c.text
	case "!=":
		return version != c.text
	}
	d := compareVersions(version, c.text)
	switch c.op {
	case "<":
		return d < 0
	case "<=":
		return d <= 0
	case "==":
		return d == 0
	case "<>":
		return d != 0
	case ">=":
		return d >= 0
	}
	return d > 0
}

// compareVersions orders versions by the UAPI group's Version Format
// Specification: "~" sorts before the end, then "-", then "^", then ".", runs of
// digits by number and runs of letters by text, lower before upper case.
func compareVersions(a, b string) int {
	valid := func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-^.~", c) >= 0
	}
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	for {
		for len(a) > 0 && !valid(a[0]) {
			a = a[1:]
		}
		for len(b) > 0 && !valid(b[0]) {
			b = b[1:]
		}
		at := func(s string, c byte) bool { return len(s) > 0 && s[0] == c }
		if at(a, '~') || at(b, '~') {
			if at(a, '~') != at(b, '~') {
				return sign(!at(a, '~'))
			}
			a, b = a[1:], b[1:]
			continue
		}
		if a == "" || b == "" {
			switch {
			case a == b:
				return 0
			case a == "":
				return -1
			}
			return 1
		}
		sep := false
		for _, c := range []byte{'-', '^', '.'} {
			if at(a, c) || at(b, c) {
				if at(a, c) != at(b, c) {
					return sign(!at(a, c))
				}
				a, b, sep = a[1:], b[1:], true
				break
			}
		}
		if sep {
			continue
		}
		if digit(a[0]) || digit(b[0]) {
			na, nb := run(a, digit), run(b, digit)
			if (na == 0) != (nb == 0) {
				return sign(na > 0)
			}
			da, db := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(da) != len(db) {
				return sign(len(da) > len(db))
			}
			if da != db {
				return sign(da > db)
			}
			a, b = a[na:], b[nb:]
			continue
		}
		na, nb := run(a, letter), run(b, letter)
		if c := strings.Compare(a[:na], b[:nb]); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
}

func sign(positive bool) int {
	if positive {
		return 1
	}
	return -1
}

// run is the length of the prefix whose bytes are in a class.
func run(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

// firmware is a parsed Firmware=.
type firmware struct {
	kind string
	// word is the compatible string, or the SMBIOS field.
	word string
	cmp  comparison
}

func parseFirmware(s string) (firmware, error) {
	switch s {
	case "uefi", "device-tree":
		return firmware{kind: s}, nil
	}
	kind, arg, ok := strings.Cut(s, "(")
	if !ok || !strings.HasSuffix(arg, ")") {
		return firmware{}, fmt.Errorf("%q is not uefi, device-tree, device-tree-compatible(WORD) or smbios-field(FIELD OPERATOR VALUE)", clip(s))
	}
	arg = strings.TrimSpace(arg[:len(arg)-1])
	switch kind {
	case "device-tree-compatible":
		if arg == "" {
			return firmware{}, errors.New("device-tree-compatible() is empty")
		}
		return firmware{kind: kind, word: arg}, nil
	case "smbios-field":
		i := strings.IndexAny(arg, "<>=!$ \t")
		if i <= 0 {
			return firmware{}, fmt.Errorf("%q has no operator after the field", clip(arg))
		}
		op, val := cutOp(strings.TrimLeft(arg[i:], blanks))
		val = strings.Trim(val, blanks)
		if op == "" || val == "" {
			return firmware{}, fmt.Errorf("%q is not FIELD OPERATOR VALUE", clip(arg))
		}
		if len(val) > 1 && (val[0] == '"' || val[0] == '\'') && val[len(val)-1] == val[0] {
			val = val[1 : len(val)-1]
		}
		field := arg[:i]
		if strings.ContainsAny(field, "/.") {
			return firmware{}, fmt.Errorf("%q is not the name of a field in /sys/class/dmi/id", clip(field))
		}
		return firmware{kind: kind, word: field, cmp: comparison{op, val}}, nil
	}
	return firmware{}, fmt.Errorf("%q is not a kind of firmware", clip(kind))
}

func checkFirmware(s string) error {
	_, err := parseFirmware(s)
	return err
}

// machineID reports whether s has the form of a machine ID, and gives it without
// hyphens in lower case.
func machineID(s string) (string, bool) {
	t := strings.ToLower(strings.ReplaceAll(s, "-", ""))
	if len(t) != 32 || strings.Trim(t, "0123456789abcdef") != "" {
		return "", false
	}
	return t, true
}

// holds answers one condition, before its "!".
func (c Condition) holds(key string, h *HostFacts) bool {
	switch key {
	case "Host":
		if id, ok := machineID(c.Text); ok {
			mine, ok := machineID(h.MachineID)
			return ok && id == mine
		}
		return globMatch(c.Text, h.Hostname, true)
	case "Virtualization":
		virt := h.Virtualization != "" && h.Virtualization != "none"
		if b, err := parseBool(c.Text); err == nil {
			return b == virt
		}
		switch c.Text {
		case "vm":
			return virt && !h.VirtContainer
		case "container":
			return virt && h.VirtContainer
		case "private-users":
			return h.PrivateUsers
		}
		return virt && c.Text == h.Virtualization
	case "KernelCommandLine":
		return cmdlineHas(h.KernelCommandLine, c.Text)
	case "KernelVersion":
		return allHold(c.Text, h.KernelRelease)
	case "Version":
		name, terms := versionSubject(c.Text)
		if name == "kernel" {
			return allHold(terms, h.KernelRelease)
		}
		v, ok := h.Versions[name]
		return ok && allHold(terms, v)
	case "Architecture":
		return c.Text == "native" || c.Text == h.Architecture
	case "Credential":
		for _, n := range h.Credentials {
			if n == c.Text {
				return true
			}
		}
		return false
	case "Firmware":
		f, err := parseFirmware(c.Text)
		if err != nil {
			return false
		}
		switch f.kind {
		case "uefi":
			return h.UEFI
		case "device-tree":
			return h.DeviceTree
		case "device-tree-compatible":
			for _, w := range h.Compatible {
				if w == f.word {
					return true
				}
			}
			return false
		}
		v, ok := h.SMBIOSFields[f.word]
		return ok && f.cmp.holds(v)
	}
	return false
}

func allHold(terms, version string) bool {
	cs, err := parseComparisons(terms)
	if err != nil {
		return false
	}
	for _, c := range cs {
		if !c.holds(version) {
			return false
		}
	}
	return true
}

// cmdlineHas looks for a word of the kernel command line: "word" stands alone
// or before "=", "word=value" as it is.
func cmdlineHas(line, want string) bool {
	for rest := line; ; {
		_, end, w, err := unquote(rest, false)
		if err != nil || w == "" && end >= len(rest) {
			return false
		}
		rest = rest[end:]
		if w == want {
			return true
		}
		if k, _, ok := strings.Cut(w, "="); ok && k == want {
			return true
		}
	}
}
