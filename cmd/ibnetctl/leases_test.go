package main

import (
	"net/netip"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// Without a daemon the leases count with which it would begin: a plan would delete their addresses otherwise.
func TestKeptLeases(t *testing.T) {
	a := &app{root: t.TempDir()}
	const lease = `{"link":"ib0","ifindex":4,"client_id":"IAE=","lease":{"address":"10.4.0.100/24","server":"10.4.0.250",` +
		`"lifetime":4294967295,"granted":1}}`
	testkit.WriteFile(t, filepath.Join(a.root, stateDir, "leases/ib0.json"), lease)
	address := link.Address{Prefix: netip.MustParsePrefix("10.4.0.100/24"), Valid: link.Forever, Preferred: link.Forever}
	for index, kept := range map[int]bool{4: true, 5: false} { // another link has its name now
		snap := &link.Snapshot{Links: []link.Link{{Index: index, Name: "ib0", Type: link.ARPHRDInfiniBand, Addresses: []link.Address{address}}}}
		a.inform(snap)
		d := snap.Links[0].DHCP
		if kept != (d != nil) || kept && (d.State != link.DHCPKept || d.Lease.Address != address.Prefix) {
			t.Errorf("index %d: %+v, want the lease: %t", index, d, kept)
		}
	}
}
