package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// validName reports whether s can be an interface name (dev_valid_name in
// net/core/dev.c) and a file name here.
func validName(s string) bool {
	return s != "" && len(s) < 16 && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("/:*?[]!=\"'\\#;%", r)
	})
}

// isIB reports whether a name looks like an IPoIB interface: the kernel's ib0,
// udev's ibp8s0, and those of RHEL's persistent names (mlx4_ib0, hfi1_0ib0).
func isIB(name string) bool {
	return strings.HasPrefix(name, "ib") || strings.HasPrefix(name, "mlx") || strings.HasPrefix(name, "hfi1_") || strings.Contains(name, "_ib")
}

// pkeyC reads a P_Key as C's strtol with base 0: hexadecimal with 0x, octal with
// 0, else decimal. So do the kernel's create_child, NetworkManager and ifup-ib.
func pkeyC(s string) (uint16, bool) {
	digits, base := s, 10
	switch {
	case strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X"):
		digits, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		digits, base = s[1:], 8
	}
	return pkeyIn(digits, base)
}

// pkeyHex reads a hexadecimal P_Key, with or without 0x.
func pkeyHex(s string) (uint16, bool) {
	return pkeyIn(strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X"), 16)
}

func pkeyIn(digits string, base int) (uint16, bool) {
	n := 0
	if digits == "" || len(digits) > 8 {
		return 0, false
	}
	for _, c := range strings.ToLower(digits) {
		v := strings.IndexRune("0123456789abcdef", c)
		if v < 0 || v >= base {
			return 0, false
		}
		if n = n*base + v; n > 0xffff {
			return 0, false
		}
	}
	return uint16(n), ib.PKey(n).IsValid()
}

// childName is the name that the kernel gives a child of a P_Key (ipoib_vlan.c).
func childName(parent string, key uint16) string {
	return fmt.Sprintf("%.10s.%04x", parent, key)
}

// keyOfName is the P_Key in a name of the form PARENT.8001.
func keyOfName(name string) (parent string, key uint16, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 || len(name)-i != 5 {
		return "", 0, false
	}
	key, ok = pkeyHex(name[i+1:])
	return name[:i], key, ok
}

// disagrees returns how a name of the form PARENT.8001 and a P_Key differ.
func disagrees(name string, key uint16, said string) string {
	if _, k, ok := keyOfName(name); ok && k|0x8000 != key|0x8000 {
		return fmt.Sprintf("the name %s contains P_Key 0x%04x, but %s is 0x%04x: 0x%04x is used; if the name is correct, change "+
			"PartitionKey=", name, k, said, key, key|0x8000)
	}
	return ""
}

func yes(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "true", "y", "t", "1", "on":
		return true
	}
	return false
}

// boolean reads the words of a boolean.
func boolean(s string) (string, bool) {
	if yes(s) {
		return "yes", true
	}
	switch strings.ToLower(s) {
	case "no", "false", "n", "f", "0", "off":
		return "no", true
	}
	return "", false
}

// modeOf reads the name of an IPoIB mode, of which the tools and the kernel accept
// these spellings alone.
func modeOf(s string) (string, bool) { return s, s == "connected" || s == "datagram" }

// connectedMode is the mode of a boolean that asks for connected mode.
func connectedMode(b string) string {
	return map[string]string{"yes": "connected", "no": "datagram"}[b]
}

const whyMode = "neither connected nor datagram"

// mode sets the IPoIB mode or reports the item.
func (d *draft) mode(s string, it *item) {
	if m, ok := modeOf(s); ok {
		d.set("IPoIB", "Mode", m, it)
	} else {
		it.left(whyMode)
	}
}

// mtu sets the MTU or reports the item.
func (d *draft) mtu(s string, it *item) {
	if v, ok := mtuOf(s); ok {
		d.set("Link", "MTUBytes", v, it)
	} else {
		it.left(whyMTU(s))
	}
}

// whyMTU is why mtuOf does not accept a value.
func whyMTU(s string) string {
	if number(s) && s[0] == '0' {
		return "a number that begins with 0, which is octal for some programs and decimal for others"
	}
	return "not an MTU of an IPoIB link (68 to 65520)"
}

// mtuOf accepts what an IPoIB link can have, written so that all tools read it alike.
func mtuOf(s string) (string, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return fmt.Sprint(n), err == nil && n >= 68 && n <= 65520 && s[0] != '0'
}

// number reports whether s is a decimal number.
func number(s string) bool {
	return s != "" && len(s) < 11 && strings.Trim(s, "0123456789") == ""
}

// decimal is a number that its tool reads as decimal whatever it begins with. A
// unit would read one with a leading zero as octal, as systemd does.
func decimal(s string) string {
	if !number(s) {
		return s
	}
	return cmp.Or(strings.TrimLeft(s, "0"), "0")
}

// hw matches by hardware address. Of an IPoIB address only the GUID is used:
// flags and queue pair change whenever the interface is made again.
func (d *draft) hw(s string, from ...*item) {
	a, err := ib.ParseHWAddr(s)
	switch {
	case err != nil:
		leftAll(from, whyValue)
	case a.Len() > 6:
		d.add("Match", "PortGUID", a.GUID().String(), from...)
	default:
		d.add("Match", "MACAddress", a.String(), from...)
	}
}

// address adds an address with a prefix length, alone that of a host.
func (d *draft) address(s string, from ...*item) {
	if a, err := netip.ParseAddr(s); err == nil {
		s = netip.PrefixFrom(a, a.BitLen()).String()
	} else if _, err := netip.ParsePrefix(s); err != nil {
		leftAll(from, whyValue)
		return
	}
	d.add("Network", "Address", s, from...)
}

// broadcast is the account of the broadcast address that goes with an address.
func broadcast(it *item, addr, value string) {
	p, err := netip.ParsePrefix(addr)
	switch {
	case err != nil:
		it.left("it has no address")
	case value == "":
		it.unneeded("it is empty")
	case value == "+", p.Addr().Is4() && value == lastOf(p):
		it.unneeded("implied by the address")
	default:
		it.left("not the last address of the network; write it into [Address] Broadcast=")
	}
}

// lastOf is the last address of an IPv4 network.
func lastOf(p netip.Prefix) string {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b).String()
}

// gateway adds a default gateway.
func (d *draft) gateway(s string, from ...*item) {
	why := ""
	if a, err := netip.ParseAddr(s); err != nil {
		why = whyValue
	} else if a.IsUnspecified() {
		why = "not a gateway; for a default route without a next hop write [Route] Destination=0.0.0.0/0 or ::/0"
	}
	if why != "" {
		leftAll(from, why)
		return
	}
	d.add("Network", "Gateway", s, from...)
}

// words adds one directive for each word of a list, each with its own account.
func (d *draft) words(key string, list []string, it *item) {
	if len(list) == 1 {
		d.add("Network", key, list[0], it)
		return
	}
	for _, w := range list {
		d.add("Network", key, w, it.part(key+" "+w))
	}
	if len(list) == 0 {
		it.unneeded("it is empty")
	}
}

// maskBits is the prefix length of a dotted netmask.
func maskBits(s string) (int, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return 0, false
	}
	b := a.As4()
	m := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n := 0
	for m&(1<<31) != 0 {
		n++
		m <<= 1
	}
	return n, m == 0
}

// prefixOf is the length that a netmask or a number of bits says.
func prefixOf(s string) (string, bool) {
	if bits, ok := maskBits(s); ok {
		return fmt.Sprint(bits), true
	}
	return s, number(s) && len(s) <= 3
}
