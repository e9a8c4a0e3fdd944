package guidfile_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/guidfile"
)

func TestParseList(t *testing.T) {
	got, err := guidfile.ParseList("f", []byte("# roots\n\n 0x2c90300000001 # spine 1\r\n0002:c903:0000:0002\n0x3 spine-3 \"upper\" row\n"))
	if want := []ib.GUID{0x2c90300000001, 0x2c90300000002, 3}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := guidfile.ParseList("f", nil); err != nil || got != nil {
		t.Errorf("an empty file: %v %v", got, err)
	}
}

func TestParseWeights(t *testing.T) {
	got, err := guidfile.ParseWeights("f", []byte("0x10 1 9\n0x10\t0x2 255 # long\n0x10 01 2 as opensm\n"))
	if want := []guidfile.Weight{{0x10, 1, 2}, {0x10, 2, 255}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestParseLIDs(t *testing.T) {
	got, err := guidfile.ParseLIDs("f", []byte("0x0002c90300000001 0x0001 0x0001\n\n0x0002c90300000002 0x0004 0x0007\n\n"))
	if want := []guidfile.LIDs{{0x2c90300000001, 1, 0}, {0x2c90300000002, 4, 2}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestParsePrefixRoutes(t *testing.T) {
	got, err := guidfile.ParsePrefixRoutes("f", []byte("fec0000000000002 0x10 # far\n0xFEC0000000000003 * backup\n* 0\n"))
	if want := []guidfile.PrefixRoute{{0xfec0000000000002, 0x10}, {0xfec0000000000003, 0}, {}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestMistakes(t *testing.T) {
	list := func(s string) error { _, err := guidfile.ParseList("f", []byte(s)); return err }
	weights := func(s string) error { _, err := guidfile.ParseWeights("f", []byte(s)); return err }
	lids := func(s string) error { _, err := guidfile.ParseLIDs("f", []byte(s)); return err }
	prefixes := func(s string) error { _, err := guidfile.ParsePrefixRoutes("f", []byte(s)); return err }
	for _, tt := range []struct {
		parse      func(string) error
		text, want string
	}{
		{list, "\n  spine\n", `f:2:3: GUID "spine"`},
		{list, "0x1\n0x0\n", "f:2:1: 0 is not a GUID"},
		{list, "x\n0x0\n", "f:1:1: GUID \"x\": "},
		{list, strings.Repeat("#", guidfile.MaxFileSize+1), "f:1:1: the file has 8388609 bytes; at most 8388608 are read"},
		{weights, "0x1 1\n", "f:1:5: want the GUID of a switch, a port number and a weight"},
		{weights, "0x1 0 1\n", `f:1:5: "0" is not a port number from 1 to 254`},
		{weights, "0x1 1 256\n", `f:1:7: "256" is not a weight from 1 to 255`},
		{prefixes, "fec0::1 *\n", `f:1:1: "fec0::1" is not a prefix such as 0xfec0000000000001, nor *`},
		{prefixes, "* x\n", `f:1:3: "x" is not a GUID such as`},
		{prefixes, "*\n", "f:1:1: want a prefix of GIDs and the port GUID of a router; * is any"},
		{lids, "0x1 0x1 0x1\n\n0x1 0x2 0x2\n", "f:3:1: port 0x0000000000000001 has LIDs in line 1 already"},
		{lids, "0x1 0x4 0x7\n0x2 0x4 0x4\n", "f:2:5: LID 4 belongs to the port of line 1 already"},
		{lids, "0x1 0x4 0x7\n0x2 0x6 0x6\n", "f:1:5: of LIDs 4 to 7 only the first is used: LID 6 belongs to the port of line 2"},
		{lids, "0x1 0x4 0x6\n", "f:1:5: LIDs 4 to 6 are not a range of 1, 2, 4 to 128"},
		{lids, "0x1 0x5 0x6\n", "f:1:5: LIDs 5 to 6 are not a range"},
		{lids, "0x1 9 8\n", "f:1:5: LIDs 9 to 8 are not a range"},
		{lids, "0x1 0x0 0xc000\n", `f:1:5: "0x0" is not a unicast LID, 1 to 0xbfff`},
		{lids, "0x1 0x1\n", "f:1:5: want a port GUID, its first and its last LID"},
	} {
		if err := tt.parse(tt.text); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%.20q: %v; want %s", tt.text, err, tt.want)
		}
	}
	err := list(strings.Repeat("x\n", 100))
	if s := err.Error(); strings.Count(s, "\n") != 20 || !strings.HasSuffix(s, "\nf: 80 more mistakes") {
		t.Errorf("%v", err)
	}
}

// A line that cannot be used is left out, as opensm does; the others count, however many
// there are before.
func TestOtherLinesCount(t *testing.T) {
	bad := strings.Repeat("nonsense - -\n", 100)
	if got, err := guidfile.ParseList("f", []byte("0x1\n"+bad+"0x2\n")); err == nil || !reflect.DeepEqual(got, []ib.GUID{1, 2}) {
		t.Errorf("%v %v", got, err)
	}
	weights, err := guidfile.ParseWeights("f", []byte(bad+"0x1 1 256\n0x1 1 3\n"))
	if err == nil || !reflect.DeepEqual(weights, []guidfile.Weight{{1, 1, 3}}) {
		t.Errorf("%v %v", weights, err)
	}
	if got, err := guidfile.ParsePrefixRoutes("f", []byte(bad+"* *\n")); err == nil || !reflect.DeepEqual(got, []guidfile.PrefixRoute{{}}) {
		t.Errorf("%v %v", got, err)
	}
	// What opensm leaves in its file when the LMC is lowered, in the order of a hash table.
	got, err := guidfile.ParseLIDs("f", []byte(bad+"1 4 7\n0x1 4 7\n0x2 5 5\n0x3 9 9\n0x4 8 11\n0x5 4 5\n"+
		"0x1 12 12\n0x6 14 17\n0x7 16 23\n0x8 20 21\n0x9 21 21\n0xa 32 39\n"))
	want := []guidfile.LIDs{{1, 4, 0}, {2, 5, 0}, {3, 9, 0}, {4, 8, 0}, {7, 16, 0}, {8, 20, 0}, {9, 21, 0}, {10, 32, 3}}
	if err == nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%v", got, err)
	}
}

// Whatever is in a file, a mistake has a place in it, and what is read has no zeros.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"* *\nfec0000000000001 0x1\n", "0x1 0x1 0x1\n\n0x2 0x2 0x3\n", "0x1 # a\n", "0x1 2 3\n", "0x1 2 3 4\r\n\x00",
		"0002:c903:0000:0002", "\v0x1\u00a01 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := strings.Split(string(b), "\n")
		placed := func(err error) {
			var te *ib.FileError
			if err == nil {
				return
			}
			if !errors.As(err, &te) || te.Line < 1 || te.Line > len(lines) || te.Col < 1 || te.Col > len(lines[te.Line-1]) {
				t.Errorf("%v has no place in %q", err, b)
			}
		}
		list, err := guidfile.ParseList("f", b)
		placed(err)
		for _, g := range list {
			if g == 0 {
				t.Errorf("a GUID 0 of %q", b)
			}
		}
		weights, err := guidfile.ParseWeights("f", b)
		placed(err)
		for _, w := range weights {
			if w.Switch == 0 || w.Port == 0 || w.Hops == 0 {
				t.Errorf("%+v of %q", w, b)
			}
		}
		lids, err := guidfile.ParseLIDs("f", b)
		placed(err)
		routes, err := guidfile.ParsePrefixRoutes("f", b)
		placed(err)
		if len(routes) > len(lines) {
			t.Errorf("%d prefix routes of %d lines", len(routes), len(lines))
		}
		used := map[int]bool{}
		for _, x := range lids {
			for i := range x.LMC.Count() {
				if l := int(x.LID) + i; used[l] || l < 1 || l > int(ib.LIDUnicastMax) {
					t.Errorf("LID %d of %q", l, b)
				} else {
					used[l] = true
				}
			}
		}
		if len(list)+len(weights) > 2*len(lines) {
			t.Errorf("%d entries of %d lines", len(list)+len(weights), len(lines))
		}
	})
}
