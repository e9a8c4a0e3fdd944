package importer

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/units"
)

var update = flag.Bool("update", false, "write what is imported into the golden files")

// A sample is a golden file: a comment that says which trait it has, sources,
// what is known of the host as "host", then the units and the rest as "want/...". A
// unit is without the line that names its source where there is but one.
type sample struct {
	name    string
	file    string
	ar      *txtar.Archive
	host    Host
	sources []Source
	want    []txtar.File
}

func samples(t testing.TB) []sample {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 150 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	var out []sample
	for _, f := range files {
		ar, err := txtar.ParseFile(f)
		testkit.NoError(t, err)
		s := sample{name: strings.TrimSuffix(filepath.Base(f), ".txtar"), file: f, ar: ar}
		for _, x := range ar.Files {
			switch {
			case strings.HasPrefix(x.Name, "want/"):
				s.want = append(s.want, x)
			case x.Name == "host":
				s.host.PortGUIDs = map[string]ib.GUID{}
				for l := range strings.Lines(string(x.Data)) {
					name, guid, ok := strings.Cut(strings.TrimSpace(l), " ")
					switch {
					case name == "timestamps":
						s.host.Timestamps = Timestamps(strings.ReplaceAll(guid, " ", "\n"))
						continue
					case name == "ifupdown":
						s.host.Ifupdown = NetworkManagerConf(strings.Split(strings.ReplaceAll(guid, " ", "\n"), "|"))
						continue
					case !ok:
						s.host.NoResolved = s.host.NoResolved || name == "no-resolved"
						continue
					}
					if s.host.PortGUIDs[name], err = ib.ParseGUID(guid); err != nil {
						t.Fatal(f, err)
					}
				}
			default:
				s.sources = append(s.sources, Source{Path: "/" + x.Name, Text: string(x.Data)})
			}
		}
		out = append(out, s)
	}
	return out
}

func TestGolden(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.name, func(t *testing.T) {
			r := Import(s.host, s.sources)
			checkAccount(t, s.sources, r)
			var got []txtar.File
			for _, u := range r.Units {
				if len(s.sources) == 1 {
					var ok bool
					if u.Text, ok = strings.CutPrefix(u.Text, "# Imported from "+s.sources[0].Path+"\n\n"); !ok {
						t.Errorf("%s does not name its source:\n%s", u.Name, u.Text)
					}
				}
				got = append(got, txtar.File{Name: "want/" + u.Name, Data: []byte(u.Text)})
			}
			var rest strings.Builder
			for _, l := range r.Left {
				// The rest is the wording of another package.
				for _, own := range []string{whyRefused, whyNoUnit} {
					if strings.HasPrefix(l.Why, own) {
						l.Why = own + "..."
					}
				}
				fmt.Fprintln(&rest, l)
			}
			for _, l := range r.Lines {
				if l.Fate == Unneeded && l.Why != "a comment" && l.Why != "its lines are listed separately" {
					fmt.Fprintf(&rest, "not needed: %s:%d: %s: %s\n", l.Path, l.Line, l.Why, l.Text)
				}
			}
			for _, n := range r.Notes {
				if place, _, ok := strings.Cut(n, ": "); ok && strings.Contains(place, units.Suffix+":") {
					n = place + ": ..."
				}
				fmt.Fprintln(&rest, "note:", n)
			}
			got = append(got, txtar.File{Name: "want/rest", Data: []byte(rest.String())})
			if *update {
				s.ar.Files = slices.DeleteFunc(s.ar.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want/") })
				s.ar.Files = append(s.ar.Files, got...)
				testkit.NoError(t, os.WriteFile(s.file, txtar.Format(s.ar), 0o644))
				return
			}
			if d := cmp.Diff(s.want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// checkAccount asserts the promise of the package: every line of every source
// that is not blank is accounted for once, what is not converted is listed
// with a reason, and the units are accepted by the parser that will read them.
func checkAccount(t testing.TB, sources []Source, r Result) {
	t.Helper()
	type place struct {
		path string
		line int
	}
	fates := map[place]Line{}
	perPath := map[string]int{}
	for _, l := range r.Lines {
		p := place{l.Path, l.Line}
		perPath[l.Path]++
		fates[p] = l
		if (l.Fate != Carried) != (l.Why != "") {
			t.Fatalf("%s:%d: fate %q with the reason %q", l.Path, l.Line, l.Fate, l.Why)
		}
		if l.Why == "a comment" && !strings.ContainsAny(l.Text[:1], "#;") && !strings.Contains(l.Text, "#") {
			t.Fatalf("%s:%d: %q is no comment", l.Path, l.Line, l.Text)
		}
	}
	listed := map[place]bool{}
	for _, l := range r.Left {
		if l.Why == "" || l.Line == 0 && l.Text != "" || strings.HasSuffix(l.String(), ": ") || strings.Contains(l.String(), "\n") {
			t.Fatalf("%+v", l)
		}
		listed[place{l.Path, l.Line}] = true
	}
	seen := map[string]int{}
	for _, s := range sources {
		seen[s.Path]++
	}
	for _, s := range sources {
		if seen[s.Path] > 1 {
			continue // places would not be unique
		}
		if len(s.Text) > MaxSize || slices.ContainsFunc(strings.SplitAfter(s.Text, "\n"),
			func(l string) bool { return len(l) > maxLine }) || strings.Count(s.Text, "\n") > lineBound(Format(s)) ||
			strings.ContainsRune(s.Text, 0) {
			if !listed[place{s.Path, 0}] {
				t.Fatalf("%s is not listed", s.Path)
			}
			continue
		}
		n, used := 0, 0
		for raw := range strings.Lines(strings.TrimPrefix(s.Text, "\ufeff")) {
			n++
			if strings.TrimSpace(raw) == "" {
				continue
			}
			used++
			l, ok := fates[place{s.Path, n}]
			if !ok {
				t.Fatalf("%s:%d has no account: %q", s.Path, n, raw)
			}
			if l.Fate == NotCarried && !listed[place{s.Path, n}] && !listed[place{s.Path, 0}] {
				// It may be reported with the line that it continues.
				above := false
				for i := n - 1; i > 0 && !above; i-- {
					above = listed[place{s.Path, i}]
				}
				if !above {
					t.Fatalf("%s:%d is not converted and not listed: %q", s.Path, n, raw)
				}
			}
		}
		if used != perPath[s.Path] && !(used == 0 && perPath[s.Path] == 1) {
			t.Fatalf("%s: %d lines, %d accounts", s.Path, used, perPath[s.Path])
		}
	}
	names := map[string]bool{}
	for _, u := range r.Units {
		if strings.ContainsAny(u.Name, "/\x00\n ") || names[u.Name] {
			t.Fatalf("unit name %q", u.Name)
		}
		names[u.Name] = true
		if _, problems := units.VerifyFile(u.Name, []byte(u.Text)); len(problems) > 0 {
			for _, p := range problems {
				said := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, strings.ReplaceAll(p.Message, "\n", " ")) })
				if p.Severity == units.Error || !said {
					t.Fatalf("%s: %v\n%s", u.Name, p, u.Text)
				}
			}
		}
	}
}

// without is what of a result does not only repeat the source.
func without(r Result) string {
	var b strings.Builder
	for _, u := range r.Units {
		b.WriteString(u.Name + "\n" + u.Text)
	}
	for _, l := range r.Left {
		fmt.Fprintf(&b, "%s %s\n", l.Path, l.Why)
	}
	return b.String()
}

// spoken are words of lines that are converted that need nothing themselves.
var spoken = map[string]string{
	"modprobe-mixed": "num_vfs 4 probe_vf 0", "keyfile-never-default": "10.0.0.254", "keyfile-noroute": "10.0.0.254",
	"keyfile-words":      "10.1.0.254",
	"keyfile-link-local": "2000 3000", "ifcfg-probes": "3", // RFC 5227 says how long a probe takes
	"keyfile-mac-decimal": "0", // of an IPoIB address only the GUID is used
	// Keys are not shown: the command of the note copies them.
	"opensm-set": "0x1234 0x77", "opensm-enforce": "0x0000000000001234", "opensm-content": "0x1", "opensm-secret": "0x5ec4e7",
}

// In a line that counts as converted no word can change without a difference
// in the units or in the list: what is converted is converted as a whole.
func TestNoWordIsLost(t *testing.T) {
	words := 0
	for _, s := range samples(t) {
		base := Import(s.host, s.sources)
		want := without(base)
		for _, l := range base.Lines {
			if l.Fate != Carried || l.Line == 0 {
				continue
			}
			i := slices.IndexFunc(s.sources, func(x Source) bool { return x.Path == l.Path })
			if smFileOf(func(x smFile) bool { return x.format == Format(s.sources[i]) }) != nil {
				continue // the file itself is converted
			}
			all := strings.Split(s.sources[i].Text, "\n")
			line := all[l.Line-1]
			for start := 0; start < len(line); {
				if strings.ContainsRune(" \t;,&|=\"'[]{}:>", rune(line[start])) {
					start++
					continue
				}
				end := start
				for end < len(line) && !strings.ContainsRune(" \t;,&|=\"'[]{}>", rune(line[end])) {
					end++
				}
				word := line[start:end]
				next := line[:end] + "7" + line[end:]
				if end < len(line) && line[end] == '=' { // the number of a key may be any
					next = line[:start] + "X" + line[start:]
				}
				start = end
				if strings.HasPrefix(word, "#") {
					break
				}
				if slices.Contains(strings.Fields(spoken[s.name]), word) {
					continue
				}
				words++
				mutated := slices.Clone(s.sources)
				lines := slices.Clone(all)
				lines[l.Line-1] = next
				mutated[i].Text = strings.Join(lines, "\n")
				if without(Import(s.host, mutated)) == want {
					t.Errorf("%s: %s:%d: %q changes nothing by another word for %q", s.name, l.Path, l.Line, line, word)
				}
			}
		}
	}
	t.Logf("%d words", words)
	if words < 500 {
		t.Errorf("only %d words", words)
	}
}

// anyValue are reasons why nothing has to be done for a line whatever its value is.
var anyValue = append([]string{"a display name", "the identity of the profile", "for DHCP", "implied by the sections of the unit",
	"an address that cannot be set is reported and retried", "each address is set by itself", "which tool reads the file",
	"it selects the program that reads the file", "no P_Key interface", "no default route", "NetworkManager uses " + TimestampsFile,
	"modprobe still reads the file", "the file is still read at boot", "systemd-udevd still reads the file", "it configures another link",
	"for the script that reads the file", "it changes nothing", "it redirects the output of what follows", "resets it",
	"a comment", "it is empty", "it follows from the address", "not loaded", "a setting of the host",
	"the choice among profiles", whyNoIPv4, whyOwnPorts, whyAskAlways, whyUnused, whyNetworkdAlone,
	whyNoLink, whyToolItself, "for other kinds of links"}, ofWhole...)

// Of a line that needs nothing because of its value, another value makes a
// difference.
func TestValueOfUnneededCounts(t *testing.T) {
	fates := func(r Result) string {
		var b strings.Builder
		for _, l := range r.Lines {
			fmt.Fprintf(&b, "%s:%d %s %s\n", l.Path, l.Line, l.Fate, l.Why)
		}
		return without(r) + b.String()
	}
	n := 0
	for _, s := range samples(t) {
		base := Import(s.host, s.sources)
		for _, l := range base.Lines {
			if l.Fate != Unneeded || l.Line == 0 || slices.ContainsFunc(anyValue, func(why string) bool { return strings.Contains(l.Why, why) }) {
				continue
			}
			i := slices.IndexFunc(s.sources, func(x Source) bool { return x.Path == l.Path })
			lines := strings.Split(s.sources[i].Text, "\n")
			end := len(strings.TrimRight(lines[l.Line-1], "\r\"' ;"))
			lines[l.Line-1] = lines[l.Line-1][:end] + "7" + lines[l.Line-1][end:]
			sources := slices.Clone(s.sources)
			sources[i].Text = strings.Join(lines, "\n")
			n++
			if fates(Import(s.host, sources)) == fates(base) {
				t.Errorf("%s: %s:%d: %q changes nothing (%s)", s.name, l.Path, l.Line, lines[l.Line-1], l.Why)
			}
		}
	}
	t.Logf("%d lines", n)
	if n < 100 {
		t.Errorf("only %d lines", n)
	}
}

// mutate changes a text at random: lines and words repeated, swapped, cut,
// spliced in from another text, bytes flipped.
func mutate(r *rand.Rand, text, other string) string {
	for range 1 + r.IntN(3) {
		lines := strings.SplitAfter(text, "\n")
		i, j := r.IntN(len(lines)), r.IntN(len(lines))
		switch r.IntN(9) {
		case 0:
			lines = slices.Delete(lines, i, i+1)
		case 1:
			lines = slices.Insert(lines, i, lines[j])
		case 2:
			lines[i], lines[j] = lines[j], lines[i]
		case 3:
			o := strings.SplitAfter(other, "\n")
			lines = slices.Insert(lines, i, o[r.IntN(len(o))])
		case 4:
			b := []byte(lines[i])
			if len(b) > 0 {
				b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			lines[i] = string(b)
		case 5:
			w := strings.Split(lines[i], " ")
			w = slices.Delete(w, r.IntN(len(w)), len(w))
			lines[i] = strings.Join(w, " ") + "\n"
		case 6:
			lines[i] = strings.TrimSuffix(lines[i], "\n") + []string{" ; true", " && reboot", " # x", "\\\n", " foo", "\"", "=", ": {a: b}",
				" || exit 1"}[r.IntN(9)] + "\n"
		case 7:
			lines[i] = strings.Repeat(" ", r.IntN(5)) + strings.TrimLeft(lines[i], " ")
		case 8:
			o := strings.Fields(other)
			w := strings.Fields(lines[i])
			if len(o) > 0 && len(w) > 0 {
				w[r.IntN(len(w))] = o[r.IntN(len(o))]
				lines[i] = strings.Join(w, " ") + "\n"
			}
		}
		text = strings.Join(lines, "")
	}
	return text
}

// The account holds for thousands of mutations of the samples, alone and
// together.
func TestAccountOfMutations(t *testing.T) {
	all := samples(t)
	r := rand.New(rand.NewPCG(20261123, 1))
	n := 20000
	if testing.Short() {
		n = 4000
	}
	for range n {
		s := all[r.IntN(len(all))]
		o := all[r.IntN(len(all))]
		sources := slices.Clone(s.sources)
		i := r.IntN(len(sources))
		sources[i].Text = mutate(r, sources[i].Text, o.sources[r.IntN(len(o.sources))].Text)
		if r.IntN(4) == 0 {
			sources = append(sources, o.sources...)
		}
		begun := time.Now()
		res := Import(s.host, sources)
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("%v for %q", d, sources)
		}
		checkAccount(t, sources, res)
		if t.Failed() {
			return
		}
	}
}

// Whatever the bytes, the import ends, its account is complete, and its units
// are free of errors.
func FuzzImport(f *testing.F) {
	for _, s := range samples(f) {
		for _, x := range s.sources {
			f.Add(x.Path, x.Text)
		}
	}
	f.Fuzz(func(t *testing.T, path, text string) {
		if len(text) > 1<<16 {
			return
		}
		in := []Source{{path, text}}
		checkAccount(t, in, Import(Host{}, in))
	})
}

// Sizes that a careless loop would be quadratic in.
func TestLargeSources(t *testing.T) {
	many := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(f(i))
		}
		return b.String()
	}
	const n = maxLines - 20
	for name, s := range map[string]Source{
		"links of netplan": {"/etc/netplan/1.yaml", "network:\n ethernets:\n" +
			many(n, func(i int) string { return fmt.Sprintf("  ib%d: {mtu: 2044}\n", i) })},
		"addresses of netplan": {"/etc/netplan/1.yaml", "network:\n ethernets:\n  ib0:\n   addresses:\n" +
			many(n, func(i int) string { return fmt.Sprintf("   - 10.%d.%d.1/24\n", i/256, i%256) })},
		"stanzas": {"/etc/network/interfaces",
			many(n/2, func(i int) string { return fmt.Sprintf("iface ib%d inet static\n address 10.0.0.1/24\n", i) })},
		"addresses": {"/etc/network/interfaces", "iface ib0 inet static\n" +
			many(n, func(i int) string { return fmt.Sprintf(" up ip addr add 10.%d.%d.1/24 dev ib0\n", i/256, i%256) })},
		"routes": {"/etc/network/interfaces", "iface ib0 inet static\n" +
			many(n, func(i int) string { return fmt.Sprintf(" up ip route add 10.%d.%d.0/24 via 1.2.3.4\n", i/256, i%256) })},
		"bad routes": {"/etc/network/interfaces", "iface ib0 inet static\n" + many(n, func(i int) string {
			return fmt.Sprintf(" up ip route add 10.%d.%d.0/24 via 1.2.3.4 table x\n", i/256, i%256)
		})},
		"children": {"/etc/rc.local", many(n, func(i int) string {
			return fmt.Sprintf("echo %d > /sys/class/net/ib%d/create_child\n",
				1+i, i%7)
		})},
		"variables": {"/etc/sysconfig/network-scripts/ifcfg-ib0",
			many(n, func(i int) string { return fmt.Sprintf("IPADDR%d=10.0.0.1\n", i%(n/2)) })},
		"commands": {"/etc/rc.local", strings.Repeat("true;", MaxSize/5-10)},
		"brackets": {"/etc/netplan/1.yaml", strings.Repeat("[", MaxSize-10)},
		"maps":     {"/etc/netplan/1.yaml", strings.Repeat("{a: ", MaxSize/4-10)},
		"a line": {"/etc/network/interfaces", "iface ib0 inet static\n" +
			strings.Repeat(" dns-nameservers "+strings.Repeat("1.1.1.1 ", 2000)+"\n", 60)},
	} {
		begun := time.Now()
		r := Import(Host{}, []Source{s})
		d := time.Since(begun)
		checkAccount(t, []Source{s}, r)
		t.Logf("%s: %v", name, d)
		if d > 20*time.Second {
			t.Errorf("%s: %v", name, d)
		}
	}
	big := Source{"/etc/netplan/1.yaml", strings.Repeat("\n", maxLines+1)}
	if r := Import(Host{}, []Source{big, {"/x", strings.Repeat("x", MaxSize+1)},
		{"/etc/rc.local", strings.Repeat("x", maxLine+1)}}); len(r.Left) != 3 {
		t.Errorf("%v", r.Left)
	}
}

// The samples have every kind of source, so that what holds for them and their
// mutations holds for all parsers.
func TestSamplesHaveEveryFormat(t *testing.T) {
	n := map[string]int{}
	for _, s := range samples(t) {
		for _, x := range s.sources {
			n[Format(x)]++
			base := filepath.Base(x.Path)
			for _, prefix := range []string{"route-", "route6-", "rule-", "rule6-", "ifroute-", "routes"} {
				if strings.HasPrefix(base, prefix) {
					n[prefix]++
				}
			}
			n[filepath.Ext(base)]++
		}
	}
	want := []string{"route-", "route6-", "rule-", "rule6-", "ifroute-", "routes", ".link", ".rules", ".netdev", ".network", ".nmmeta"}
	for _, p := range parsers {
		want = append(want, p.format)
	}
	want = slices.AppendSeq(want, maps.Keys(notRead))
	for _, f := range want {
		if n[f] == 0 && f != formatRefused {
			t.Errorf("no sample of %q", f)
		}
	}
}

// unknownLine is a line that no tool knows, in the syntax of a format; "" is for
// the formats of which lines are not read one by one.
func unknownLine(format, before string) string {
	indent := before[:len(before)-len(strings.TrimLeft(before, " -"))]
	switch format {
	case "netplan", "nmstate":
		return strings.ReplaceAll(indent, "-", " ") + "zzfrobnicate: 7"
	case "modules", "partitions", "udev":
		return "" // still read by another program
	case "interfaces", "opensm", "modprobe", "mlx4":
		return indent + "zzfrobnicate 7"
	case "script":
		return "zzfrobnicate 7"
	}
	return "ZZFROBNICATE=7"
}

// ofWhole are reasons why nothing has to be done for a whole section or file.
var ofWhole = []string{"the loopback link", "it hides the profiles of its UUID", "for programs that ask NetworkManager",
	"for DHCP and router advertisements", "the family is not enabled", "about the policy, not about a link", whySection,
	whyNotIB, "not a P_Key interface"}

// A line that is added anywhere in any source is listed, if not all of its section
// needs nothing.
func TestUnknownLineIsListed(t *testing.T) {
	n, kinds := 0, map[string]int{}
	for _, s := range samples(t) {
		for i, x := range s.sources {
			lines := strings.Split(strings.TrimSuffix(x.Text, "\n"), "\n")
			for at := range lines {
				format := Format(x)
				added := unknownLine(format, lines[at])
				if added == "" || strings.HasSuffix(strings.TrimSpace(lines[at]), "\\") {
					continue
				}
				sources := slices.Clone(s.sources)
				sources[i].Text = strings.Join(slices.Insert(slices.Clone(lines), at+1, added), "\n") + "\n"
				if Format(sources[i]) != format {
					continue
				}
				n++
				kinds[format]++
				for _, l := range Import(s.host, sources).Lines {
					whole := l.Fate == Unneeded && slices.ContainsFunc(ofWhole, func(why string) bool { return strings.HasPrefix(l.Why, why) })
					if l.Path == x.Path && l.Line == at+2 && l.Fate != NotCarried && !whole {
						t.Errorf("%s: %s: %q after %q is %q (%s)", s.name, x.Path, added, lines[at], l.Fate, l.Why)
					}
				}
			}
		}
	}
	t.Logf("%d lines: %v", n, kinds)
	if n < 1000 || len(kinds) < len(parsers)-4 {
		t.Errorf("only %d lines in %v", n, kinds)
	}
}
