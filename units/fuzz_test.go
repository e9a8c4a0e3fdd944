package units

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/internal/testkit"

	"github.com/rogpeppe/go-internal/txtar"
)

// corpusTexts are the units of the golden tests, of the schema and of the
// examples.
func corpusTexts(t testing.TB) (out []string) {
	schema := Schema()
	files, _ := filepath.Glob("testdata/load/*.txtar")
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		testkit.NoError(t, err)
		for _, x := range a.Files {
			out = append(out, string(x.Data))
		}
	}
	for i := range schema {
		for k := range schema[i].Keys {
			out = append(out, exampleUnit(&schema[i], &schema[i].Keys[k]))
		}
	}
	docs, _ := filepath.Glob("../docs/examples/*.ibnetwork")
	for _, d := range docs {
		b := testkit.ReadFile(t, d)
		out = append(out, string(b))
	}
	out = append(out, "[Match]\nName=ib0\n[Network]\nAddress=10.3.{eno1.3}.{eno1.4}/16\nAddressTable=/t\n"+
		"[Address]\nAddress=fd00::+{host:2}/64\nPeer=fd00::1\nLabel=x\n")
	return append(out, "[Match]\nName=\"\n[Network]\nAddress=\\\n", "\xff\xfe[\x00")
}

// corpus adds every unit of the golden tests and every example as a seed.
func corpus(f *testing.F, add func(text []byte)) {
	for _, s := range corpusTexts(f) {
		add([]byte(s))
	}
}

// FuzzParse feeds any bytes as a unit: no panic, every problem has a place inside
// the file, and what was understood survives printing and reading again.
func FuzzParse(f *testing.F) {
	corpus(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, data []byte) {
		u, problems := VerifyFile("a.ibnetwork", data)
		lines := 0
		for rest := string(data); rest != ""; lines++ {
			_, rest = nextLine(rest)
		}
		for _, p := range problems {
			if p.Message == "" || p.Pos.File != "a.ibnetwork" || p.Pos.Line < 0 || p.Pos.Line > max(lines, 1) || p.Pos.Column < 0 {
				t.Fatalf("problem %+v", p)
			}
			if strings.ContainsAny(p.String(), "\n\x00") {
				t.Fatalf("message is not one line: %q", p.String())
			}
		}
		checkPositions(t, string(data))
		if len(problems) > maxFileProblems*2 {
			t.Fatalf("%d problems", len(problems))
		}
		if again, more := VerifyFile("a.ibnetwork", data); (again == nil) != (u == nil) || !slices.Equal(more, problems) {
			t.Fatalf("the second time it is %v", more)
		}
		if u == nil {
			return
		}
		if v, _ := u.Match.Matches(&Facts{}); len(u.Match.Invalid) > 0 && v != No {
			t.Fatalf("a problem in [Match] and it matches: %v", v)
		}
		text := u.Format()
		again, more := VerifyFile("a.ibnetwork", []byte(text))
		if again == nil && len(u.Match.Invalid) > 0 {
			return // a match that fits nothing has no form in a file
		}
		if again == nil {
			t.Fatalf("the printed unit is not readable:\n%s\n%v", text, more)
		}
		if got := again.Format(); got != text && len(u.Match.Invalid) == 0 {
			t.Fatalf("printing is not stable:\n%s\nthen\n%s", text, got)
		}
		if len(problems) == 0 && len(more) > 0 {
			t.Fatalf("the printed unit has problems, the unit has none:\n%s\n%v", text, more)
		}
		if !reflect.DeepEqual(again.Settings(), u.Settings()) && len(u.Match.Invalid) == 0 {
			t.Fatalf("settings differ after printing:\n%v\n%v", u.Settings(), again.Settings())
		}
		var b bytes.Buffer
		if err := Cat(&b, u); err != nil || !strings.HasPrefix(b.String(), "# a.ibnetwork\n"+string(data)) {
			t.Fatalf("%v: %q", err, b.String())
		}
	})
}

// FuzzLoad loads any bytes as a main file, a drop-in and a second unit: a valid unit
// loads whatever is in the others.
func FuzzLoad(f *testing.F) {
	corpus(f, func(b []byte) { f.Add(b, b, "10-x") })
	f.Fuzz(func(t *testing.T, main, drop []byte, name string) {
		if strings.ContainsAny(name, "/\x00") || name == "" || name == "99-good" || name == "." || name == ".." {
			return
		}
		roots := []Root{
			{"/etc/systemd/network", fstest.MapFS{
				name + Suffix:                     {Data: main},
				name + Suffix + ".d/10-drop.conf": {Data: drop},
				"99-good" + Suffix:                {Data: []byte("[Match]\nName=ib0\n")},
			}},
			{"/run/systemd/network", nil},
		}
		set := Load(roots)
		good := set.Unit("99-good")
		if good == nil || len(good.Problems) != 0 || good.Match.Name[0].V.Glob != "ib0" {
			t.Fatalf("the good unit is lost: %+v", set)
		}
		if c := Diff(set, Load(roots)); !c.Empty() {
			t.Fatalf("the same files differ: %+v", c)
		}
	})
}

// FuzzReload puts a unit with a drop-in in force and then any bytes in their
// places: either what is on disk is in force, or the last good version as a whole,
// and reading it again changes nothing.
func FuzzReload(f *testing.F) {
	corpus(f, func(b []byte) { f.Add(b, b) })
	for i := range goodUnit {
		f.Add([]byte(goodUnit[:i]), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, main, drop []byte) {
		const name, conf = "10-a.ibnetwork", "10-a.ibnetwork.d/x.conf"
		roots := func(main, drop []byte) []Root {
			return []Root{{"/etc", fstest.MapFS{name: {Data: main}, conf: {Data: drop}}}}
		}
		good := Load(roots([]byte(goodUnit), []byte("[Link]\nGroup=7\n")))
		set := Reload(good, roots(main, drop))
		u := set.Unit("10-a")
		if u == nil {
			t.Fatalf("the unit is gone: %v", set.Problems)
		}
		onDisk := u.Files[0].Text == string(main) &&
			(len(u.Files) == 1 && len(drop) == 0 || len(u.Files) == 2 && u.Files[1].Text == string(drop))
		switch {
		case u.Kept && !Diff(good, set).Empty():
			t.Fatalf("kept and changed: %+v", Diff(good, set))
		case u.Kept && !slices.ContainsFunc(set.Problems, func(p Problem) bool { return p.Kept == lastGood }):
			t.Fatalf("nothing says why it is kept: %v", set.Problems)
		case !u.Kept && (!onDisk || len(u.Match.Invalid) > 0):
			t.Fatalf("in force is %+v, match %v", u.Files, u.Match.Invalid)
		}
		again := Reload(set, roots(main, drop))
		if !slices.Equal(again.Problems, set.Problems) || !Diff(set, again).Empty() || again.Unit("10-a").Kept != u.Kept {
			t.Fatalf("the second load differs: %v\n%v", set.Problems, again.Problems)
		}
	})
}

// FuzzValues feeds the value parsers.
func FuzzValues(f *testing.F) {
	schema := Schema()
	for i := range schema {
		for k := range schema[i].Keys {
			f.Add(schema[i].Keys[k].Example)
		}
	}
	f.Add("1.5G 3K")
	f.Add("1h 30min 5us")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil {
			if again, err := parseSize(fmt.Sprint(n)); err != nil || again != n {
				t.Errorf("size %q is %d, read again %d %v", s, n, again, err)
			}
			if strings.TrimLeft(s, "0123456789") == "" && strings.TrimLeft(s, "0") != strings.TrimLeft(fmt.Sprint(n), "0") {
				t.Errorf("size %q is %d", s, n)
			}
		}
		if m, err := parseMTU(s); err == nil {
			if again, err := parseMTU(m.String()); err != nil || again != m || !m.Max && (m.Bytes < minMTU || m.Bytes > math.MaxInt32) {
				t.Errorf("MTU %q is %v, read again %v %v", s, m, again, err)
			}
		}
		if n, err := parseUint(s, 3, 1000); err == nil && (n < 3 || n > 1000) {
			t.Errorf("number %q is %d", s, n)
		}
		if p, _, err := parsePrefix(s); err == nil {
			if again, _, err := parsePrefix(p.String()); err != nil || again != p {
				t.Errorf("prefix %q is %v, read again %v %v", s, p, again, err)
			}
		}
		if d, err := parseDomain(s); err == nil {
			if again, err := parseDomain(d.String()); err != nil || again != d {
				t.Errorf("domain %q is %v, read again %v %v", s, d, again, err)
			}
		}
		if d, err := parseSpan(s); err == nil {
			if d < 0 {
				t.Errorf("span %q is %d", s, d)
			}
			if again, err := parseSpan(formatSpan(d)); err != nil || again != d && d < maxSpan {
				t.Errorf("span %q is %d, printed %s, read again %d %v", s, d, formatSpan(d), again, err)
			}
		}
		if d, err := parseDNS(s); err == nil {
			if again, err := parseDNS(d.String()); err != nil || again != d {
				t.Errorf("DNS %q is %v, read again %v %v", s, d, again, err)
			}
		}
		if _, err := parseFirmware(s); err == nil {
			Condition{Text: s}.holds("Firmware", &HostFacts{})
		}
		if cs, err := parseComparisons(s); err == nil && (len(cs) == 0 || len(cs) > 64) {
			t.Errorf("comparisons %q: %d", s, len(cs))
		}
		if r, err := parseBitRate(s); err == nil {
			if again, err := parseBitRate(fmt.Sprintf("%dM", r)); err != nil || again != r {
				t.Errorf("rate %q is %d, read again %d %v", s, r, again, err)
			}
		}
		// Every word of a command line is found, whatever the rest is.
		if w, after, err := shellWord(s, `"'`); err == nil && after != s && !cmdlineHas(s, w) {
			t.Errorf("command line %q: word %q is not found", s, w)
		}
		compareVersions(s, "6.1~rc1")
		if compareVersions(s, s) != 0 {
			t.Errorf("version %q differs from itself", s)
		}
		if text, err := parseNodeDescription(s); err == nil {
			if n := len(ExpandNodeDescription(text, "host.example", "mlx5_0")); n > nodeDescriptionMax {
				t.Errorf("node description of %d bytes", n)
			}
		}
	})
}
