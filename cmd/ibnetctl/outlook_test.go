package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/files"
	"ibnetworkd/smctl/worker"
)

// The units with a file that is not in place yet: it counts as if it were, and
// everything else stays as it is, masks included.
func TestWithFiles(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc/systemd/network")
	for name, text := range map[string]string{"10-a.ibnetwork": "[Match]\nName=a\n",
		"10-a.ibnetwork.d/x.conf": "[Link]\nMTUBytes=2000\n", "20-b.ibnetwork": "[Match]\nName=b\n"} {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	testkit.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, "30-c.ibnetwork")))
	lib := filepath.Join(root, "usr/lib/systemd/network")
	testkit.WriteFile(t, filepath.Join(lib, "30-c.ibnetwork"), "[Match]\nName=c\n")
	a := &app{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	a.root = root
	set := a.withFiles(map[string][]byte{
		filepath.Join(dir, "20-b.ibnetwork"):          []byte("[Match]\nName=b\n[Link]\nMTUBytes=3000\n"),
		filepath.Join(dir, "10-a.ibnetwork.d/y.conf"): []byte("[IPoIB]\nMode=datagram\n")})
	var names []string
	for _, u := range set.Units {
		names = append(names, u.Name)
	}
	if strings.Join(names, " ") != "10-a.ibnetwork 20-b.ibnetwork" || len(set.Problems) > 0 {
		t.Fatalf("units %v, %v", names, set.Problems)
	}
	if u := set.Unit("10-a.ibnetwork"); !u.Link.MTUBytes.Set || !u.IPoIB.Mode.Set {
		t.Errorf("drop-ins: %+v %+v", u.Link.MTUBytes, u.IPoIB.Mode)
	}
	if u := set.Unit("20-b.ibnetwork"); u.Link.MTUBytes.V.Bytes != 3000 {
		t.Errorf("the new text: %+v", u.Link.MTUBytes)
	}
}

// What plan says of subnet managers comes from the units, the daemon's state and
// what the workers were given.
func TestManagerSteps(t *testing.T) {
	set, err := unitsIn(writeUnit(t, "[Match]\nLinkLayer=InfiniBand\n[SubnetManager]\nManage=auto\nPriority=9\n"))
	testkit.NoError(t, err)
	snap := &link.Snapshot{Schema: link.SnapshotSchema, Devices: []link.Device{{Name: "mlx5_0", Ports: []link.Port{
		{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: 0x0002c903000abcde, LID: 1, SMLID: 1}}}}}
	kept := worker.Dir(t.TempDir())
	testkit.NoError(t, kept.Save(0x0002c903000abcde, worker.Saved{Settings: smctl.Settings(smctl.Policy{Priority: 3})}))
	sms := []smctl.Status{{PortGUID: "0x0002c903000abcde", IBDevice: "mlx5_0", Port: 1, Phase: "master",
		Worker: "ibnetsm@0x0002c903000abcde.service", WorkerState: "active",
		WorkerText: "Master, 2 nodes, no other subnet manager"}}
	steps := outlook(newSystem(snap, set, &link.Record{}), sms, kept, files.Checker{UID: -1})
	if len(steps) != 1 || steps[0].Port != "mlx5_0/1" || steps[0].Command != "systemctl reload ibnetsm@0x0002c903000abcde.service" ||
		!strings.Contains(steps[0].Note, "only") {
		t.Errorf("%+v", steps)
	}
	none, err := unitsIn(t.TempDir())
	testkit.NoError(t, err)
	if steps = outlook(newSystem(snap, none, &link.Record{}), sms, kept, files.Checker{UID: -1}); len(steps) != 1 ||
		!strings.HasPrefix(steps[0].Command, "systemctl stop ") {
		t.Errorf("without a unit: %+v", steps)
	}
	// Two managers that are each other's only peer.
	two := &link.Snapshot{Schema: link.SnapshotSchema, Devices: []link.Device{{Name: "mlx5_0", Ports: []link.Port{
		{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, GUID: 0x0002c903000abcde, LID: 1, SMLID: 1},
		{Num: 2, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, GUID: 0x0002c903000abcdf, LID: 2, SMLID: 1}}}}}
	both := []smctl.Status{sms[0], {PortGUID: "0x0002c903000abcdf", IBDevice: "mlx5_0", Port: 2, Phase: "standby",
		Worker: "ibnetsm@0x0002c903000abcdf.service", WorkerState: "active", WorkerText: "Standby, 1 other subnet manager"}}
	both[0].WorkerText = "Master, 2 nodes, 1 other subnet manager"
	steps = outlook(newSystem(two, none, &link.Record{}), both, kept, files.Checker{UID: -1})
	const left = "left without a subnet manager"
	if len(steps) != 2 || !strings.Contains(steps[0].Note, left) || !strings.Contains(steps[1].Note, left) {
		t.Errorf("both managers of a fabric stop: %+v", steps)
	}
	both[0].WorkerText = "Master, 2 nodes, 2 other subnet managers"
	for _, s := range outlook(newSystem(two, none, &link.Record{}), both, kept, files.Checker{UID: -1}) {
		if strings.Contains(s.Note, "without") {
			t.Errorf("a third manager remains: %+v", s)
		}
	}
	// A port that is gone, or is to be an Ethernet port, has its manager stopped.
	eth, err := unitsIn(writeUnit(t, "[Match]\nLinkLayer=InfiniBand\n[SubnetManager]\nManage=auto\n[Port]\nType=eth\n"))
	testkit.NoError(t, err)
	for note, sys := range map[string]*system{
		"makes port mlx5_0/1 an Ethernet port": newSystem(snap, eth, &link.Record{}),
		"port mlx5_0/1 does not exist":         newSystem(&link.Snapshot{Schema: link.SnapshotSchema}, set, &link.Record{}),
	} {
		steps := outlook(sys, sms, kept, files.Checker{UID: -1})
		if len(steps) != 1 || !strings.HasPrefix(steps[0].Command, "systemctl stop ") || !strings.Contains(steps[0].Note, note) {
			t.Errorf("%s: %+v", note, steps)
		}
	}
}

func writeUnit(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "10-ib.ibnetwork"), text)
	return dir
}

// A link that waits for the fabric alone needs no command, and is not called
// configured.
func TestPlanOfAWaitingLink(t *testing.T) {
	set, err := unitsIn(writeUnit(t, "[Match]\nName=ib0\n"))
	testkit.NoError(t, err)
	snap := &link.Snapshot{Schema: link.SnapshotSchema, Devices: []link.Device{{Name: "mlx5_0", Ports: []link.Port{{
		Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortInit, Phys: ib.PhysLinkUp, GUID: 1, PKeys: []ib.PKey{0xffff}}}}},
		Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagUp, MTU: 2044,
			IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1, Sysctl: map[string]string{}}}}
	var out bytes.Buffer
	a := &app{out: &out, err: &out, root: t.TempDir()}
	testkit.NoError(t, a.printPlan(t.Context(), newSystem(snap, set, &link.Record{})))
	for _, want := range []string{"# waiting: ib0: port mlx5_0/1 is Initializing: no subnet manager", "#   next: ",
		"\nNothing to do until then.\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	a.json = true
	testkit.NoError(t, a.printPlan(t.Context(), newSystem(snap, set, &link.Record{})))
	var got answer.Plan
	testkit.NoError(t, json.Unmarshal(out.Bytes(), &got))
	if b := got.Blocked; len(b) != 1 || b[0].On.Link != "ib0" || !b[0].Wait || b[0].Reason.Code != link.CodeNoSM {
		t.Errorf("blocked are %+v", b)
	}

	// Beside a link that needs a command it still waits, and that link does not.
	other := snap.Links[0]
	other.Index, other.Name, other.MTU = 5, "ib1", 1500
	snap.Links = append(snap.Links, other)
	if set, err = unitsIn(writeUnit(t, "[Match]\nName=ib0 ib1\n[Link]\nMTUBytes=2044\n")); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	a.json = false
	testkit.NoError(t, a.printPlan(t.Context(), newSystem(snap, set, &link.Record{})))
	if text := out.String(); !strings.Contains(text, "ip link set ib1 mtu 2044") || !strings.Contains(text, "# waiting: ib0: ") ||
		strings.Contains(text, "# waiting: ib1: ") || strings.Contains(text, "Nothing to do") {
		t.Errorf("beside a link that needs a command:\n%s", text)
	}
}

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
