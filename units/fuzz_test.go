package units

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// corpusTexts are the units of the golden tests, of the schema and of the
// examples.
func corpusTexts(t testing.TB) (out []string) {
	files, _ := filepath.Glob("testdata/load/*.txtar")
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
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
		b, err := os.ReadFile(d)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
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
		if u == nil {
			return
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
		u.Match.Matches(&Facts{})
		var b bytes.Buffer
		if err := Cat(&b, u); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzLoad lays any bytes out as a main file, a drop-in and a second unit: the
// good unit is there whatever the others hold.
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

// FuzzValues feeds the value parsers.
func FuzzValues(f *testing.F) {
	for i := range schema {
		for k := range schema[i].Keys {
			f.Add(schema[i].Keys[k].Example)
		}
	}
	f.Add("1.5G 3K")
	f.Add("1h 30min 5us")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && n > 1<<63 {
			t.Errorf("size %q is %d", s, n)
		}
		if d, err := parseSpan(s); err == nil {
			if d < 0 {
				t.Errorf("span %q is %d", s, d)
			}
			if again, err := parseSpan(formatSpan(d)); err != nil || again != d && d < 1<<52 {
				t.Errorf("span %q is %d, printed %s, read again %d %v", s, d, formatSpan(d), again, err)
			}
		}
		if d, err := parseDNS(s); err == nil {
			if again, err := parseDNS(d.String()); err != nil || again != d {
				t.Errorf("DNS %q is %v, read again %v %v", s, d, again, err)
			}
		}
		_, _ = parseFirmware(s)
		_, _ = parseComparisons(s)
		_, _ = parseBitRate(s)
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
