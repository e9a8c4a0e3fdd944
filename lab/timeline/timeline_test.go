package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
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
	testkit.NoError(t, SVG(&one, "x & y", recs))
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

// texts are what the picture shows outside of titles.
func texts(svg string) (all []string) {
	for _, m := range regexp.MustCompile(`<text [^>]*>([^<]*)`).FindAllStringSubmatch(svg, -1) {
		all = append(all, m[1])
	}
	return all
}

// Every mark has a name at every position, no name covers another one, and the picture
// contains all.
func TestMarks(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	recs := []Record{
		{At: at(0), Row: "script", Text: "boot a", Mark: true},
		{At: at(10), Row: "script", Text: "boot b", Mark: true},
		{At: at(20), Row: "script", Text: "boot c", Mark: true},
		{At: at(5000), Row: "ops", Text: "ip link set ib0 up", Mark: true},
		{At: at(5001), Row: "ops", Text: "ip address add 10.0.0.1/24 dev ib0", Mark: true},
		{At: at(9980), Row: "script", Text: "cut left/8 from right/8", Mark: true},
		{At: at(9990), Row: "ping x", Text: "answers"},
		{At: at(9995), Row: "ping x", Text: "lost 1 of 1", Mark: true, Bad: true},
		{At: at(9996), Row: "ping x", Text: "lost 3 of 9", Note: true},
		{At: at(10000), Row: "script", Text: "join left/8", Mark: true},
	}
	var out bytes.Buffer
	testkit.NoError(t, SVG(&out, "t", recs))
	all := texts(out.String())
	for _, r := range recs {
		if (r.Mark || r.Note) && !slices.Contains(all, r.Text) {
			t.Errorf("%q is not shown", r.Text)
		}
	}
	// Boxes of the texts of marks, about, by their line.
	boxes := map[string][][2]float64{}
	for _, m := range regexp.MustCompile(`<text x="([0-9.]+)" y="([0-9]+)" fill="#(?:555|c0392b)"( text-anchor="end")?>([^<]*)`).FindAllStringSubmatch(out.String(), -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		w := 6 * float64(len(m[4]))
		if m[3] != "" {
			x -= w
		}
		if x < minLeft || x+w > minLeft+width+right {
			t.Errorf("%q lies outside of the picture: %g to %g", m[4], x, x+w)
		}
		for _, b := range boxes[m[2]] {
			if x < b[1] && x+w > b[0] {
				t.Errorf("%q is over another text", m[4])
			}
		}
		boxes[m[2]] = append(boxes[m[2]], [2]float64{x, x + w})
	}
	if strings.Index(out.String(), ">script<") > strings.Index(out.String(), ">ops<") {
		t.Error("the script is not first")
	}
}

// However many operations there are, the picture stays small, says how many, lists
// the first, and shows what failed.
func TestManyMarks(t *testing.T) {
	t0 := time.Unix(1000, 0)
	for _, tc := range []struct {
		name                string
		rows, marks, height int
	}{
		{"few", 1, 30, 600}, {"hundreds", 1, 600, 1300}, {"many rows", 40, 300, tallest + 2000}, {"thousands", 2, 20000, 1600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var recs []Record
			for r := range tc.rows {
				for i := range tc.marks {
					recs = append(recs, Record{At: t0.Add(time.Duration(i*i%7919) * time.Millisecond), Row: strconv.Itoa(r) + ": ops",
						Text: "ip address add 10.0.0." + strconv.Itoa(i) + "/24 dev ib0", Mark: true, Bad: i == tc.marks/2})
				}
			}
			var out bytes.Buffer
			testkit.NoError(t, SVG(&out, "t", recs))
			if err := wellFormed(out.Bytes()); err != nil {
				t.Error(err)
			}
			m := regexp.MustCompile(`height="(\d+)"`).FindStringSubmatch(out.String())
			if h, _ := strconv.Atoi(m[1]); h > tc.height || out.Len() > 2<<20 {
				t.Errorf("%d pixels high, %d bytes", h, out.Len())
			}
			failed, shown := recs[tc.marks/2].Text, false
			ops := 0
			for _, s := range texts(out.String()) {
				shown = shown || strings.Contains(s, failed)
				if n := regexp.MustCompile(`^(?:\[\d+\] )?(\d+) ops(, 1 failed)?$`).FindStringSubmatch(s); n != nil {
					k, _ := strconv.Atoi(n[1])
					ops += k
				} else if strings.HasPrefix(s, "ip address") {
					ops++
				}
			}
			if !shown {
				t.Errorf("the failed %q is not shown", failed)
			}
			if ops != tc.rows*tc.marks {
				t.Errorf("%d ops are shown, want %d", ops, tc.rows*tc.marks)
			}
		})
	}
}

// The same event again and again is one text.
func TestSameMarks(t *testing.T) {
	t0 := time.Unix(1000, 0)
	recs := []Record{{At: t0.Add(time.Minute), Row: "ping x", Text: "ok", Mark: true}}
	for i := range 40 {
		recs = append(recs, Record{At: t0.Add(time.Duration(i) * 50 * time.Millisecond), Row: "ping x", Text: "lost 1 of 1", Mark: true,
			Bad: true})
	}
	var out bytes.Buffer
	testkit.NoError(t, SVG(&out, "t", recs))
	if all := texts(out.String()); !slices.Contains(all, "lost 1 of 1 ×40") || !slices.Contains(all, "ok") {
		t.Errorf("shown: %q", all)
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
		testkit.NoError(t, SVG(&out, "t", Align(Read(bytes.NewReader(b), "p "))))
		testkit.NoError(t, wellFormed(out.Bytes()))
	})
}
