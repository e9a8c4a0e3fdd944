package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSVG(t *testing.T) {
	t0 := time.Unix(1000, 0)
	recs := []Record{
		{At: t0, Row: "a swib0/1", Text: "INIT"},
		{At: t0.Add(300 * time.Millisecond), Row: "a swib0/1", Text: "ACTIVE"},
		{At: t0.Add(400 * time.Millisecond), Row: "a <-> b", Text: "10.0.0.2 answers", Mark: true},
		{At: t0.Add(2 * time.Second), Row: "a swib0/1", Text: ""},
	}
	var one, two bytes.Buffer
	if err := SVG(&one, "x & y", recs); err != nil {
		t.Fatal(err)
	}
	_ = SVG(&two, "x & y", recs)
	if one.String() != two.String() {
		t.Error("two drawings of the same records differ")
	}
	for _, want := range []string{"INIT for 300ms", "ACTIVE for 1.7s", "a &lt;-&gt; b", "x &amp; y", `cx="390.0"`} {
		if !strings.Contains(one.String(), want) {
			t.Errorf("no %q in\n%s", want, one.String())
		}
	}
	if err := wellFormed(one.Bytes()); err != nil {
		t.Error(err)
	}
}

// A mark is named where there is room before the next one of its row, and the
// picture holds everything.
func TestMarks(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var out bytes.Buffer
	err := SVG(&out, "t", []Record{
		{At: t0, Row: "script", Text: "cut the cable", Mark: true},
		{At: t0.Add(5 * time.Second), Row: "ops", Text: "ip link set ib0 up", Mark: true},
		{At: t0.Add(5001 * time.Millisecond), Row: "ops", Text: "ip address add 10.0.0.1/24 dev ib0", Mark: true},
		{At: t0.Add(10 * time.Second), Row: "sm swib0/1", Text: "MASTER"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, shown := range map[string]bool{">cut the cable</text>": true, ">ip link set ib0 up</text>": false, ">ip address add 10.0.0.1/24 dev ib0</text>": true} {
		if strings.Contains(out.String(), text) != shown {
			t.Errorf("%q shown: %v, want %v", text, !shown, shown)
		}
	}
	for _, m := range regexp.MustCompile(`(?:cx|x)="([0-9.]+)"`).FindAllStringSubmatch(out.String(), -1) {
		if v, err := strconv.ParseFloat(m[1], 64); err != nil || v < 0 || v > left+width {
			t.Errorf("%s lies outside of the picture", m[0])
		}
	}
}

func wellFormed(b []byte) error {
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"at":"2026-01-01T00:00:00Z","row":"r","text":"INIT"}` + "\n{"))
	f.Add([]byte("\x00\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if err := SVG(&out, "t", Read(bytes.NewReader(b), "p ")); err != nil {
			t.Fatal(err)
		}
	})
}
