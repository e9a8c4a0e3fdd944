package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Whatever the kernel refuses, a person reads a sentence that names the thing,
// has the kernel's own words, and says what to do.
func TestRefusals(t *testing.T) {
	on := link.Target{Link: "net7", Ifindex: 7, IBDevice: "mlx5_0", Port: 1}
	guid := ib.GUID(0x0002c903000abcde)
	mac, _ := ib.ParseHWAddr("02:00:00:00:00:01")
	yes, rate, id, state := true, uint32(10), uint16(7), units.VFLinkEnable
	route := link.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Table: 254, Type: 1}
	ops := []link.Op{
		link.SetUp{On: on, Up: true}, link.SetMTU{On: on, MTU: 4092}, link.SetMode{On: on, Mode: link.ModeConnected}, link.SetUmcast{On: on, Set: true},
		link.SetFlag{On: on, Flag: link.FlagAllMulti, Set: true}, link.SetGroup{On: on, Group: 7}, link.SetGUID{On: on}, link.AddChild{On: on, Parent: on, PKey: 0x8001}, link.DelLink{On: on},
		link.AddAddress{On: on, Address: link.Address{Prefix: netip.MustParsePrefix("10.1.0.1/24")}}, link.AddAddress{On: on, Address: link.Address{Prefix: netip.MustParsePrefix("fd00::1/64")}},
		link.DelAddress{On: on, Address: link.Address{Prefix: netip.MustParsePrefix("10.1.0.1/24")}}, link.RestoreAddress{On: on, Address: link.Address{Prefix: netip.MustParsePrefix("10.1.0.1/24")}},
		link.AddRoute{On: on, Route: route}, link.DelRoute{On: on, Route: route},
		link.AddRule{Rule: link.Rule{Family: 4, Priority: 9, Table: 7, Type: 1, SuppressPrefix: -1, SuppressIfGroup: -1}}, link.DelRule{Rule: link.Rule{Family: 4, Priority: 9, Table: 7, Type: 1, SuppressPrefix: -1, SuppressIfGroup: -1}},
		link.SetSysctl{On: on, Key: "ipv4/rp_filter", Value: "1"}, link.SetDNS{On: on, Servers: []string{"10.1.0.53"}},
		roce.SetPortType{On: on, Port: roce.PortType{Bus: "pci", Dev: "0000:03:00.0", Index: 1}, Type: units.PortTypeEth},
		roce.SetNodeDesc{On: on, Desc: "node7"}, roce.SetVersion{On: on, Version: 2}, roce.SetToS{On: on, ToS: 104}, roce.SetDCBX{On: on, Flags: 9}, roce.SetPFC{On: on, Priority: 8},
		roce.SetECN{On: on, Priority: 3, Enable: true}, roce.SetModprobe{On: on, Text: "x"}, roce.SetETS{On: on}, roce.MapDSCP{On: on, DSCP: 26, Priority: 3}, roce.ClearDSCP{On: on}, roce.SetTrust{On: on, Trust: units.TrustDSCP},
		roce.SetBuffers{On: on}, roce.AddVLAN{On: on, Name: "v7", VLAN: units.VLAN{Id: units.Some(id)}}, roce.DelVLAN{On: on, Name: "v7"}, roce.SetVLAN{On: on, Name: "v7"}, roce.AddSoft{On: on, Name: "rxe0"}, roce.DelSoft{On: on, Name: "rxe0", Index: 3},
		roce.SetAutoprobe{On: on, Bus: "pci", Dev: "0000:03:00.0"}, roce.SetVFs{On: on, Bus: "pci", Dev: "0000:03:00.0", Count: 4}, roce.SetVFs{On: on, Bus: "pci", Dev: "0000:03:00.0", Old: 2, Count: 4},
		roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{NodeGUID: &guid}}, roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{LinkState: &state}}, roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{Trust: &yes}},
		roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{MinRate: &rate, MaxRate: &rate}}, roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{MAC: mac}}, roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{VLAN: &id}},
		roce.SetVFGUIDs{On: on, VF: 1, Node: &guid, Bus: "pci", Dev: "0000:03:00.1"}, roce.RebindVF{On: on, VF: 1, Bus: "pci", Dev: "0000:03:00.1", Node: guid},
	}
	errnos := []unix.Errno{unix.EPERM, unix.ENOENT, unix.ESRCH, unix.EINTR, unix.EIO, unix.ENXIO, unix.E2BIG, unix.EAGAIN, unix.ENOMEM, unix.EACCES, unix.EBUSY, unix.EEXIST, unix.ENODEV,
		unix.EINVAL, unix.ENFILE, unix.ENOSPC, unix.EROFS, unix.ERANGE, unix.ENOSYS, unix.EBADMSG, unix.EOPNOTSUPP, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.ENETDOWN, unix.ENETUNREACH,
		unix.EHOSTUNREACH, unix.ENOBUFS, unix.ETIMEDOUT}
	said := map[string]bool{}
	for _, op := range ops {
		said[reflect.TypeOf(op).Name()] = true
		for _, errno := range errnos {
			for _, message := range []string{"", "the driver's own words."} {
				v, why := classify(op, fmt.Errorf("wrapped: %w", &nl.Error{What: "what", Errno: errno, Message: message}))
				name := fmt.Sprintf("%T %v", op, errno)
				if v == verdictDone || v == verdictForeign {
					if why != (link.Reason{}) {
						t.Errorf("%s: nothing is wrong, yet it says %+v", name, why)
					}
					continue
				}
				thing := strings.Fields(op.Target().String())[0]
				named := strings.Contains(why.Text, thing) || slices.ContainsFunc([]string{"0000:03:00.0", "0000:03:00.1", "rxe0", "v7", "mlx5_0", "10.9.0.0/16", "priority 9", "modprobe.d", "rp_filter"}, func(s string) bool { return strings.Contains(why.Text, s) })
				words := strings.Contains(why.Text, errno.Error()) && strings.Contains(why.Text, strings.TrimSuffix(message, "."))
				if why.Code == link.CodeNameTaken || errno == unix.EEXIST || errno == unix.ENOENT || errno == unix.ENETDOWN {
					words = true // the sentence says it better
				}
				switch {
				case why.Code == "" || why.Text == "" || why.Next == "":
					t.Errorf("%s: nothing to act on: %+v", name, why)
				case !named || !words:
					t.Errorf("%s: does not say what or why: %q", name, why.Text)
				case strings.Contains(why.Text+why.Next, "%!") || strings.HasSuffix(why.Text, ".") || strings.HasSuffix(why.Next, ".") || len(why.Text) > 400:
					t.Errorf("%s: %q / %q", name, why.Text, why.Next)
				}
			}
		}
	}
	// None is forgotten.
	for _, file := range []string{"../roce/op.go", "../link/op.go", "../link/network.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`func \(o (\w+)\) Target\(\)`).FindAllStringSubmatch(string(text), -1) {
			if !said[m[1]] {
				t.Errorf("%s has an operation %s that is not in the table", file, m[1])
			}
		}
	}
}
