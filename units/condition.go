package units

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

func checkAny(string) error { return nil }

func checkWord(s string) error {
	if strings.ContainsAny(s, blanks) {
		return fmt.Errorf("%q is more than one word", ib.Clip(s))
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
	"arc": "arc", "arceb": "arc-be", "riscv32": "riscv32",
	"riscv64": "riscv64", "loongarch64": "loongarch64", "parisc": "parisc", "parisc64": "parisc64",
}

// Architecture is systemd's name for the machine field of uname(2), as in
// HostFacts.Architecture.
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
			return fmt.Errorf("%q is the name that uname prints; write %s", ib.Clip(s), a)
		}
		names = append(names, a)
	}
	slices.Sort(names)
	return didYouMean(nearest(s, names), "%q is not an architecture (x86-64, arm64, ppc64-le ...)", ib.Clip(s))
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
// allowed in the first one, and a term without an operator is a glob.
func parseComparisons(s string) ([]comparison, error) {
	var out []comparison
	for rest := s; ; {
		w, after, err := shellWord(rest, `"'`)
		if err != nil {
			return nil, err
		}
		if after == rest {
			break
		}
		rest = after
		op, text := cutOp(strings.Trim(w, blanks))
		if text = strings.TrimLeft(text, blanks); text == "" {
			w, after, err := shellWord(rest, "")
			if err != nil {
				return nil, err
			}
			if after == rest || len(out) > 0 {
				return nil, fmt.Errorf("no version after %q; remove the space between them", op)
			}
			text, rest = w, after
		}
		if op == "" {
			op = "$="
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

// shellWord cuts the next word off s: the given quotes are resolved, a backslash
// keeps the byte after it. after is s where there is no word. A quote or backslash at the
// end is an error; word is what was before.
func shellWord(s, quotes string) (word, after string, err error) {
	rest := strings.TrimLeft(s, blanks)
	if rest == "" {
		return "", s, nil
	}
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\':
			if i++; i == len(rest) {
				return b.String(), "", errors.New("nothing after the \"\\\" at the end")
			}
			b.WriteByte(rest[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && strings.IndexByte(quotes, c) >= 0:
			quote = c
		case quote == 0 && strings.IndexByte(blanks, c) >= 0:
			return b.String(), rest[i:], nil
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return b.String(), "", fmt.Errorf("quote %c is not closed", quote)
	}
	return b.String(), "", nil
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
		}
		if a == "" || b == "" {
			return cmp.Compare(len(a), len(b))
		}
		for _, c := range []byte("-^.") {
			if at(a, c) || at(b, c) {
				if at(a, c) != at(b, c) {
					return sign(!at(a, c))
				}
				a, b = a[1:], b[1:]
			}
		}
		if a != "" && digit(a[0]) || b != "" && digit(b[0]) {
			na, nb := run(a, digit), run(b, digit)
			if (na == 0) != (nb == 0) {
				return sign(na > 0)
			}
			da, db := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if c := cmp.Or(cmp.Compare(len(da), len(db)), strings.Compare(da, db)); c != 0 {
				return c
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
		return firmware{}, fmt.Errorf("%q is not uefi, device-tree, device-tree-compatible(WORD) or smbios-field(FIELD OPERATOR "+
			"VALUE)", ib.Clip(s))
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
			return firmware{}, fmt.Errorf("%q has no operator after the field", ib.Clip(arg))
		}
		op, val := cutOp(strings.TrimLeft(arg[i:], blanks))
		val = strings.Trim(val, blanks)
		if op == "" || val == "" {
			return firmware{}, fmt.Errorf("%q is not FIELD OPERATOR VALUE", ib.Clip(arg))
		}
		if len(val) > 1 && (val[0] == '"' || val[0] == '\'') && val[len(val)-1] == val[0] {
			val = val[1 : len(val)-1]
		}
		field := arg[:i]
		if strings.ContainsAny(field, "/.") {
			return firmware{}, fmt.Errorf("%q is not the name of a field in /sys/class/dmi/id", ib.Clip(field))
		}
		return firmware{kind: kind, word: field, cmp: comparison{op, val}}, nil
	}
	return firmware{}, fmt.Errorf("%q is not a kind of firmware", ib.Clip(kind))
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

// isName reports whether a condition of Host= asks for a host name, not a machine ID.
func (c Condition) isName() bool {
	_, id := machineID(c.Text)
	return !id
}

// holds evaluates one condition without its "!".
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
		return slices.Contains(h.Credentials, c.Text)
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
			return slices.Contains(h.Compatible, f.word)
		}
		v, ok := h.SMBIOSFields[f.word]
		return ok && f.cmp.holds(v)
	}
	return false
}

func allHold(terms, version string) bool {
	cs, err := parseComparisons(terms)
	return err == nil && !slices.ContainsFunc(cs, func(c comparison) bool { return !c.holds(version) })
}

// cmdlineHas reports whether the kernel command line has a word: "word" is alone
// or before "=", "word=value" is as a whole.
func cmdlineHas(line, want string) bool {
	for rest := line; ; {
		w, after, err := shellWord(rest, `"'`)
		if err == nil && after == rest {
			return false
		}
		// As systemd, a quote that is not closed ends with the line.
		if k, _, _ := strings.Cut(w, "="); w == want || k == want {
			return true
		}
		if err != nil {
			return false
		}
		rest = after
	}
}
