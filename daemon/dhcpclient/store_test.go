package dhcpclient

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ibnetworkd/link"
)

// What is kept is read again; a file that is anything else is as none.
func TestStore(t *testing.T) {
	s := store(filepath.Join(t.TempDir(), "leases"))
	if got := s.load(); len(got) != 0 {
		t.Errorf("%+v of no directory", got)
	}
	x := saved{Link: "ib0", Ifindex: 4, ClientID: []byte{32, 1}, Lease: link.Lease{Address: netip.MustParsePrefix("10.11.0.100/24"),
		Server: netip.MustParseAddr("10.11.0.1"), Lifetime: 3600, Granted: 7, Renew: 8, Rebind: 9}}
	if err := s.save(x); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ib1": "", "ib2": "{", "ib3": `{"link":"ib0"}`, "ib4": `{"link":"ib4","lease":{"address":"x"}}`,
		"ib5": `{"link":"ib5"}`, "ib6": strings.Repeat(" ", mostSaved+1)} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(s.path("ib7"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := s.load(); !reflect.DeepEqual(got, map[string]saved{"ib0": x}) {
		t.Errorf("%+v", got)
	}
	if err := s.save(saved{Link: "../x"}); err == nil {
		t.Error("a name with a slash is a file")
	}
	for range 2 {
		if err := s.remove("ib0"); err != nil {
			t.Error(err)
		}
	}
}

func TestHostname(t *testing.T) {
	for name, want := range map[string]string{"node17": "node17", "node17.example": "node17.example",
		"localhost": "", "localhost.localdomain": "",
		"(none)": "", "": "", "a..b": "", strings.Repeat("a", 64): ""} {
		if got := hostname(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
