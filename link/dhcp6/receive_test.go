package dhcp6

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// What is no answer to this client is dropped and counted.
func TestDrops(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*answer)
		want   link.DHCPDrops
	}{
		"transaction": {func(a *answer) { a.xid ^= 1 }, link.DHCPDrops{Foreign: 1}},
		"client":      {func(a *answer) { a.top[0].value = []byte{1, 2, 3} }, link.DHCPDrops{Foreign: 1}},
		"no client":   {func(a *answer) { a.top = a.top[1:] }, link.DHCPDrops{Foreign: 1}},
		"no server":   {func(a *answer) { a.server = nil }, link.DHCPDrops{Malformed: 1}},
		"long server": {func(a *answer) { a.server = make([]byte, 131) }, link.DHCPDrops{Malformed: 1}},
		"address":     {func(a *answer) { a.to = address1 }, link.DHCPDrops{Malformed: 1}},
		"type":        {func(a *answer) { a.kind = typeSolicit }, link.DHCPDrops{Malformed: 1}},
		"two servers": {top(optServerID, 1, 2, 3), link.DHCPDrops{Malformed: 1}},
		"two statuses": {func(a *answer) {
			a.top = append(a.top, option{optStatus, []byte{0, 0}}, option{optStatus, []byte{0, 0}})
		},
			link.DHCPDrops{Malformed: 1}},
		"many options": {func(a *answer) { a.top = append(a.top, distinct(mostOptions)...) }, link.DHCPDrops{Malformed: 1}},
		"multicast":    {func(a *answer) { a.addr = servers }, link.DHCPDrops{Contradictory: 1}},
		"link-local":   {func(a *answer) { a.addr = own }, link.DHCPDrops{Contradictory: 1}},
		"preferred":    {func(a *answer) { a.life[2] = 3601 }, link.DHCPDrops{Contradictory: 1}},
		"short":        {func(a *answer) { a.life[2], a.life[3] = 9, 9 }, link.DHCPDrops{Contradictory: 1}},
		"nothing":      {func(a *answer) { a.life[2], a.life[3] = 0, 0 }, link.DHCPDrops{Contradictory: 1}},
		"T1 after T2":  {func(a *answer) { a.life[0], a.life[1] = 1000, 900 }, link.DHCPDrops{Contradictory: 1}},
		"preference":   {top(optPreference, 1, 2), link.DHCPDrops{Contradictory: 1}},
		"two IA": {func(a *answer) {
			a.top = append(a.top, option{optIANA, append([]byte{0, 0, 0, 7}, make([]byte, 8)...)})
		},
			link.DHCPDrops{Contradictory: 1}},
		"short IA": {func(a *answer) { a.noIA, a.top = true, append(a.top, option{optIANA, make([]byte, 11)}) },
			link.DHCPDrops{Contradictory: 1}},
		"a reply": {func(a *answer) { a.kind = typeReply }, link.DHCPDrops{Contradictory: 1}},
	} {
		h := newHost(t, config(), nil, false)
		h.up(false)
		h.hear(typeAdvertise, c.change)
		got := h.c.Drops()
		got.Last = ""
		if got != c.want || h.c.offer != nil {
			t.Errorf("%s: %+v, offer %+v", name, h.c.Drops(), h.c.offer)
		}
	}
	h := newHost(t, config(), nil, false)
	h.up(false)
	whole := h.answer(typeAdvertise, nil)
	for n := range whole {
		h.step(h.c.Packet(h.now, whole[:n], false))
	}
	wrong := slices.Clone(whole)
	wrong[len(wrong)-1] ^= 1
	h.step(h.c.Packet(h.now, wrong, false))
	h.c.Oversized()
	if d := h.c.Drops(); d.Malformed != len(whole)+2 || h.c.offer != nil {
		t.Errorf("%+v of %d packets", d, len(whole)+2)
	}
}

// Options that may come more than once do not spoil an answer, and all servers in them count.
func TestRepeatedOptions(t *testing.T) {
	ntp := func(addrs ...string) (o options) {
		for _, a := range addrs {
			o = append(o, option{ntpServer, netip.MustParseAddr(a).AsSlice()})
		}
		return o
	}
	const vendor = 17
	h := newHost(t, config(), nil, false)
	h.up(false)
	h.hear(typeAdvertise, top(optPreference, 255))
	h.hear(typeReply, func(a *answer) {
		a.top = append(a.top, option{vendor, []byte{0, 0, 0, 9}}, option{vendor, []byte{0, 0, 0, 10}},
			option{optNTP, ntp("fd00:11::1", "fd00:11::2").append(nil)}, option{optNTP, []byte{0, 1, 0, 16, 0xfd}},
			option{optNTP, ntp("fd00:11::3", "fd00:11::1").append(nil)})
	})
	h.state(link.DHCPBound)
	if got := fmt.Sprint(h.c.View().Lease.NTP); got != "[fd00:11::1 fd00:11::2 fd00:11::3]" {
		t.Error(got)
	}
}

// An address that cannot be used does not spoil the others of its IA (RFC 8415, section 21.6).
func TestSeveralAddresses(t *testing.T) {
	bad := addressOf("fd00:11::bad", 3601, 3600)
	none := addressOf("fd00:11::bad", 3000, 3600, option{optStatus, []byte{0, byte(statusNoAddrs)}})
	good, wanted := addressOf("fd00:11::200", 3000, 3600), addressOf("fd00:11::100", 3000, 3600)
	back := addressOf("fd00:11::100", 0, 0)
	for name, c := range map[string]struct {
		opts options
		want string
		code status
		err  bool
	}{
		"bad first":  {options{bad, good}, "fd00:11::200", 0, false},
		"bad last":   {options{good, none, bad}, "fd00:11::200", 0, false},
		"wanted":     {options{good, bad, wanted}, "fd00:11::100", 0, false},
		"taken back": {options{bad, back, good}, "fd00:11::200", 0, false},
		"both back":  {options{addressOf("fd00:11::300", 0, 0), back}, "fd00:11::100", 0, false},
		"only bad":   {options{none, bad}, "", 0, true},
		"only none":  {options{bad, none}, "", statusNoAddrs, false},
		"nothing":    {nil, "", 0, true},
	} {
		ia := options{{optIANA, c.opts.append([]byte{11: 0, 3: 7})}}
		l, code, err := (&message{opts: ia}).binding(7, address1, 0)
		got := ""
		if l != nil {
			got = l.Address.Addr().String()
		}
		if got != c.want || code != c.code || (err != nil) != c.err {
			t.Errorf("%s: %q, %s, %v", name, got, code, err)
		}
	}
}

func addressOf(a string, preferred, valid uint32, sub ...option) option {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(netip.MustParseAddr(a).AsSlice(), preferred), valid)
	return option{optIAAddr, options(sub).append(b)}
}

func distinct(n int) (out options) {
	for i := range n {
		out = append(out, option{uint16(1000 + i), nil})
	}
	return out
}

func TestTimes(t *testing.T) {
	for in, want := range map[[4]uint32][2]uint64{
		{0, 0, 3000, 3600}:                                         {1500, 2400},
		{100, 200, 3000, 3600}:                                     {100, 200},
		{200, 200, 3000, 3600}:                                     {200, 200},
		{1, 200, 3000, 3600}:                                       {1500, 2400},
		{100, 3600, 3000, 3600}:                                    {1500, 2400},
		{link.Forever, link.Forever, 3000, 3600}:                   {1500, 2400},
		{0, 0, 0, 3600}:                                            {1800, 2880},
		{0, 0, link.Forever, link.Forever}:                         {0, 0},
		{600, 900, link.Forever, link.Forever}:                     {600, 900},
		{0, 0, 1000, link.Forever}:                                 {500, 800},
		{link.Forever, link.Forever, 1000, link.Forever}:           {500, 800},
		{0, link.Forever, link.Forever, link.Forever}:              {0, 0},
		{link.Forever, link.Forever, link.Forever - 1, ^uint32(0)}: {2147483647, 3435973835},
	} {
		l := &link.Lease{Preferred: in[2], Lifetime: in[3]}
		if err := times(l, in[0], in[1]); err != nil || l.Renew != want[0] || l.Rebind != want[1] {
			t.Errorf("%d: %d %d %v, want %d", in, l.Renew, l.Rebind, err, want)
		}
	}
}

func TestHWServers(t *testing.T) {
	broadcast := ib.MustParseHWAddr("00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff")
	want, _ := ib.ParseHWAddr("00:ff:ff:ff:ff:12:60:1b:80:01:00:00:00:00:00:00:00:01:00:02")
	if got := HWServers(link.ARPHRDInfiniBand, broadcast); string(got) != string(want.Bytes()) {
		t.Errorf("% x", got)
	}
	if got := HWServers(1, ib.HWAddr{}); string(got) != "\x33\x33\x00\x01\x00\x02" {
		t.Errorf("% x", got)
	}
	if got := HWServers(link.ARPHRDInfiniBand, ib.HWAddr{}); got != nil {
		t.Errorf("% x", got)
	}
}

func TestClientID(t *testing.T) {
	mac := []byte{0x80, 0, 2, 8, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0xa, 0xbc, 0xdf}
	const machine = "0123456789abcdef0123456789abcdef"
	raw := units.DHCPv6{DUIDType: units.Some(units.DUIDUUID), DUIDRawData: units.Some(units.DUIDData("\x01\x02"))}
	for want, d := range map[string]*units.DHCPv6{
		"\x00\x02\x00\x00\xab\x11":                         {},
		"\x00\x03\x00\x20\x00\x02\xc9\x03\x00\x0a\xbc\xdf": {DUIDType: units.Some(units.DUIDLinkLayer)},
		"\x00\x04\x01\x02":                                 &raw,
	} {
		if got := ClientID(d, machine, mac, link.ARPHRDInfiniBand); !bytes.HasPrefix(got, []byte(want)) || len(got) > 14 {
			t.Errorf("% x, want % x", got, want)
		}
	}
}
