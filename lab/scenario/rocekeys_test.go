package scenario

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// Each key of [Port], [RoCE], [SoftRoCE] and [VirtualFunctions] as a user tries
// them, one unit after the other on one port: what is set is in the kernel, and
// invalid values are reported in a sentence.
func TestKeysOfRoCE(t *testing.T) {
	t.Parallel()
	const match = "[Match]\nIBDevice=swib0\nPort=1\n[Port]\nType=eth\n"
	type want struct{ key, actual, why string } // of a key that stands for several the text is a part
	withAndWithoutUdev(t, lab.Config{Ports: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-eth.ibnetwork": match,
		unitDir + "20-ib.ibnetwork":  "[Match]\nIBDevice=swib0\nPort=2\n[SoftRoCE]\n[VLAN]\nId=7\n[MACVLAN]\nName=job0\n[RoCE]\nPFC=3\n",
	}}, func(g *lab.G) {
		// Where systemd runs it keeps the node description.
		_, _ = g.Try("systemctl", "mask", "--now", "rdma-ndd.service")
		d := startDaemon(g)
		// The change of port 1 takes the link of port 2 away too, and it comes
		// back with another name: both from one report.
		var eth, other string
		g.Wait("the Ethernet port", 20*time.Second, func() bool {
			eth, other = "", ""
			for _, s := range d.report().Links {
				if s.IBDevice == "swib0" && s.Port == 1 && s.Kind == "ether" {
					eth = s.Name
				}
				if s.IBDevice == "swib0" && s.Port == 2 && s.Kind == "ipoib" {
					other = s.Name
				}
			}
			return eth != "" && other != ""
		})
		check := func(name, text string, wants []want, shows map[string][]string) {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				st := d.status(name)
				for _, w := range wants {
					found := false
					var have []link.Attribute
					for _, a := range st.Attributes {
						if a.Name != w.key {
							continue
						}
						have = append(have, a)
						if w.why == "" && a.OK() && strings.Contains(a.Actual, w.actual) || w.why != "" && strings.Contains(a.Why.Text, w.why) &&
							a.Why.Next != "" {
							found = true
						}
					}
					if !found {
						return fmt.Sprintf("%s\nwith\n%s: %+v, want %+v\n%s", name, text, have, w, tail(d.p.Output(), 10))
					}
				}
				for what, words := range shows {
					if s := dcbHas(g, eth, what, words...); s != "" {
						return text + s
					}
				}
				return ""
			})
		}
		long := strings.Repeat("x", 70)
		for _, tt := range []struct {
			text  string
			wants []want
			shows map[string][]string
		}{
			{"NodeDescription=%H on %d %%\n", []want{{"NodeDescription", " on swib0 %", ""}, {"Type", "eth", ""}}, nil},
			{"NodeDescription=" + long + "\n", []want{{"NodeDescription", long[:64], ""}}, nil},
			{"[RoCE]\nVersion=2\nDSCP=26\n", []want{{"Version", "2", ""}, {"TypeOfService", "104 (DSCP 26)", ""}}, nil},
			{"[RoCE]\nVersion=1\nTypeOfService=106\nDSCP=3\n", []want{{"TypeOfService", "106 (DSCP 26)", ""}}, nil},
			{"[RoCE]\nPFC=3 5\n", []want{{"PFC", "3,5", ""}}, map[string][]string{"pfc": {"3:on", "4:off", "5:on"}}},
			{"[RoCE]\nPFC=0-7\n", []want{{"PFC", "0,1,2,3,4,5,6,7", ""}}, map[string][]string{"pfc": {"0:on", "7:on"}}},
			{"[RoCE]\nPFC=none\n", []want{{"PFC", "none", ""}}, map[string][]string{"pfc": {"3:off", "7:off"}}},
			{"[RoCE]\nETS=0:30% 3:70% 5:strict\nPriorityToClass=3:3 5:3\n", []want{{"ETS", "0:30", ""}},
				map[string][]string{"ets": {"0:30", "3:70", "5:strict", "prio-tc 0:0 1:0 2:0 3:3 4:0 5:3"}}},
			{"[RoCE]\nETS=1:10\n", []want{{"ETS", "", "would add up to 110, not 100"}}, nil},
			{"[RoCE]\nBufferSize=0:100000 1:50000\nPriorityToBuffer=3:1\n", []want{{"BufferSize", "1:50000", ""}},
				map[string][]string{"buffer": {"0:100000", "1:50000", "3:1"}}},
			{"[RoCE]\nBufferSize=0:1G\n", []want{{"BufferSize", "", "bytes, it has 262016"}}, nil},
			{"[RoCE]\nCableLength=5\n", []want{{"CableLength", "", "has no setting for the length of the cable"}}, nil},
			{"[RoCE]\nECN=3\n", []want{{"ECN", "", "has no files for ECN"}}, nil},
			{"[RoCE]\nDSCPToPriority=26:3 48:6\n", []want{{"DSCPToPriority", "26:3", ""}, {"DSCPToPriority", "48:6", ""}},
				map[string][]string{"app": {"AF31:3", "CS6:6"}}},
			{"[RoCE]\nPriority=5\nDSCP=26\nTrust=dscp\n", []want{{"DSCPToPriority", "26:5", ""}, {"Trust", "dscp", ""}},
				map[string][]string{"app": {"AF31:5", "CS6:6"}}},
			{"[RoCE]\nTrust=pcp\nPriority=5\nDSCP=26\n", []want{{"Trust", "", "exclude each other"}}, nil},
			{"[RoCE]\nTrust=pcp\n", []want{{"Trust", "pcp", ""}}, nil},
			{"[RoCE]\nTrust=dscp\n", []want{{"Trust", "dscp", ""}}, map[string][]string{"app": {"0:0"}}},
			{"[RoCE]\nPFC=3\nWriteModprobeFile=yes\n", []want{{"PFC", "3", ""}, {"WriteModprobeFile", "", "there is no module option"}}, nil},
			{"[SoftRoCE]\nDriver=siw\nName=iwarp0\n", []want{{"SoftRoCE", "siw iwarp0", ""}}, nil},
			{"[SoftRoCE]\nDriver=siw\nName=iwarp1\n", []want{{"SoftRoCE", "siw iwarp1", ""}}, nil},
			{"[SoftRoCE]\nDriver=rxe\nName=iwarp1\n", []want{{"SoftRoCE", "rxe iwarp1", ""}}, nil},
			{"[SoftRoCE]\nName=swib1\n", []want{{"SoftRoCE", "", "an RDMA device swib1 exists"}}, nil},
			{"[VirtualFunctions]\nCount=1\nAutoprobe=no\nNodeGUID=auto\n[VF]\nVirtualFunction=3\n",
				[]want{{"Count", "1", ""}, {"Autoprobe", "no", ""}, {"VF 0 NodeGUID", "", "no GUIDs"},
					{"VF 3", "", "has no virtual function 3, it has 1"}}, nil},
			{"[VirtualFunctions]\nCount=0\n", []want{{"Count", "0", ""}}, nil},
		} {
			g.Write(unitDir+"10-eth.ibnetwork", match+tt.text)
			d.p.Signal(syscall.SIGHUP)
			check(eth, tt.text, tt.wants, tt.shows)
		}
		check(other, "", []want{{"RoCE", "", "is an InfiniBand link: [RoCE]"}, {"SoftRoCE", "", "is an InfiniBand link: [SoftRoCE]"},
			{"VLAN", "", "is an InfiniBand link: the kernel makes no VLAN on IPoIB"},
			{"MACVLAN", "", "is an InfiniBand link: the kernel makes no macvlan on IPoIB"}}, nil)
		if out := g.Exec("rdma", "link"); strings.Contains(out, "iwarp") {
			g.Errorf("a soft device is left behind:\n%s", out)
		}
		// Invalid values: each is reported with its place, and what is valid
		// among them is done.
		bad := "[RoCE]\nVersion=3\nDSCP=64\nTypeOfService=256\nPriority=8\nPFC=3 8\nTrust=vlan\nETS=8:10 " +
			"0:110\nPriorityToClass=1:9\nDSCPToPriority=64:1 " +
			"1:8\nBufferSize=9:1\nPriorityToBuffer=0:8\nCableLength=0\nECN=x\n[SoftRoCE]\nDriver=x\n[VirtualFunctions]\nCount=-1\n" +
			"NodeGUID=1\n[VF]\nVirtualFunction=0\nMaxRate=x\nVLANId=5000\nMACAddress=1\n"
		g.Write(unitDir+"10-eth.ibnetwork", match+bad)
		d.p.Signal(syscall.SIGHUP)
		check(eth, bad, []want{{"PFC", "3", ""}}, map[string][]string{"pfc": {"3:on", "4:off"}})
		out, err := g.Try("ibnetctl", "verify", unitDir+"10-eth.ibnetwork")
		n := 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, unitDir+"10-eth.ibnetwork:") {
				n++
			}
		}
		if err == nil || n != 21 {
			g.Errorf("%d problems of 21, %v:\n%s", n, err, out)
		}
		// The RDMA device gets another name, as udev gives it: all goes on.
		g.Write(unitDir+"10-eth.ibnetwork", "[Match]\nName="+eth+"\n[RoCE]\nVersion=2\nPFC=4\n")
		d.p.Signal(syscall.SIGHUP)
		check(eth, "", []want{{"PFC", "4", ""}, {"Version", "2", ""}}, nil)
		g.Exec("rdma", "dev", "set", "swib0", "name", "rocep1")
		g.WaitFor(10*time.Second, func() string {
			if s := d.status(eth); s.IBDevice != "rocep1" || attr(s, "Version").Actual != "2" || !attr(s, "Version").OK() {
				return fmt.Sprintf("%+v\n%s", s, tail(d.p.Output(), 5))
			}
			return ""
		})
	})
}
