package smctl

import (
	"strings"
	"testing"
	"unicode"
)

// What a worker says is read back as it was meant; all else is a note.
func TestSaid(t *testing.T) {
	for _, tt := range []struct {
		text string
		want StatusText
	}{
		{"", StatusText{}},
		{"Master, 8 nodes, no other subnet manager", StatusText{State: SMMaster, Known: true, Nodes: 8}},
		{"Master, 8 nodes, 1 other subnet manager", StatusText{State: SMMaster, Known: true, Nodes: 8, Others: 1}},
		{"Standby, 12 other subnet managers; a.conf:1:2: no", StatusText{State: SMStandby, Known: true, Others: 12, Note: "a.conf:1:2: no"}},
		{"Discovering, no other subnet manager", StatusText{State: SMDiscovering, Known: true}},
		{"Mastery of the fabric", StatusText{Note: "Mastery of the fabric"}},
		{"ibnetsm: port x: no QP0", StatusText{Note: "ibnetsm: port x: no QP0"}},
	} {
		if got := ParseStatusText(tt.text); got != tt.want || got.String() != tt.text {
			t.Errorf("%q: %+v %q, want %+v", tt.text, got, got, tt.want)
		}
	}
}

func FuzzParseStatusText(f *testing.F) {
	f.Add("Master, 8 nodes, 2 other subnet managers; a note")
	f.Add("Standby\x1b[31m, 5 nodes")
	f.Fuzz(func(t *testing.T, text string) {
		s := ParseStatusText(text)
		if again := ParseStatusText(s.String()); again != s {
			t.Fatalf("%q: %+v, and again %+v", text, s, again)
		}
		if len(s.String()) > maxStatusText+100 || strings.ContainsFunc(s.String(), unicode.IsControl) {
			t.Fatalf("%q: %q", text, s)
		}
	})
}
