package link

import (
	"net/netip"
	"testing"

	"ibnetworkd/ib"
)

func TestProbedAddresses(t *testing.T) {
	const (
		unit   = "[Network]\nAddress=10.0.0.1/24\nDuplicateAddressDetection=both\n"
		add    = "ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n"
		then   = "#   then: ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n"
		remove = "#   next: remove the address from the other host, or choose another one\n"
	)
	by, err := ib.ParseHWAddr("80:00:02:09:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d9")
	if err != nil {
		t.Fatal(err)
	}
	probed := func(p Probe) func(*Snapshot, *Record) {
		return func(s *Snapshot, _ *Record) {
			p.Address = netip.MustParseAddr("10.0.0.1")
			s.Links[1].Probes = []Probe{p}
		}
	}
	taken := Probe{State: ProbeConflict, By: by}
	testPlans(t, []planCase{
		{name: "OK free", unit: unit, sys: probed(Probe{State: ProbeFree}), want: add},
		{name: "OK not yet asked", unit: unit, want: "# waiting: ib0: 10.0.0.1 is probed when ib0 has a carrier\n" + then},
		{name: "OK asked", unit: unit, sys: probed(Probe{State: ProbeAsking}), want: "" +
			"# waiting: ib0: ARP probes show whether another host uses 10.0.0.1\n" + then},
		{name: "bad another host's", unit: unit, sys: probed(taken), want: "" +
			"# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" + then + remove},
		{name: "bad no packet sockets", unit: unit, sys: probed(Probe{State: ProbeAsking, Trouble: "operation not permitted"}), want: "" +
			"# blocked: ib0: 10.0.0.1 cannot be probed: operation not permitted\n" + then +
			"#   next: systemctl start ibnetworkd-packet.socket; or run ibnetworkd with CAP_NET_RAW; or remove DuplicateAddressDetection=\n"},
		{name: "bad another host's, which is on the link", unit: unit, sys: func(s *Snapshot, r *Record) {
			ours([]Address{{Prefix: prefix("10.0.0.1/24"), Valid: Forever, Preferred: Forever}}, nil)(s, r)
			probed(taken)(s, r)
		}, want: "# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" + remove},
		{name: "OK only the section that says so", sys: probed(taken), want: add,
			unit: "[Network]\nDuplicateAddressDetection=yes\n[Address]\nAddress=10.0.0.1/24\nDuplicateAddressDetection=ipv6\n"},
		{name: "OK a link without ARP", unit: unit, sys: func(s *Snapshot, r *Record) {
			probed(taken)(s, r)
			s.Links[1].Flags |= FlagNoARP
		}, want: add},
		{name: "OK IPv6 is the kernel's", unit: "[Network]\nAddress=fd00::1/64\nAddress=fd00::2/64\nDuplicateAddressDetection=ipv4\n", want: "" +
			"ip address add fd00::1/64 nodad dev ib0\nip address add fd00::2/64 nodad dev ib0\n"},
	})
}
