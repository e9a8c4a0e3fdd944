package link_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func TestNotices(t *testing.T) {
	rail := func(name string, index int) (link.Device, link.Link) {
		return link.Device{Name: name, Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive,
				LID: ib.LID(index), SMLID: 1, SubnetPrefix: 0xfe80 << 48}}},
			link.Link{Index: index, Name: "ibp" + name[5:] + "s0", Type: link.ARPHRDInfiniBand, Kind: "ipoib",
				IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: name, Port: 1}
	}
	host := func() *link.Snapshot {
		s := &link.Snapshot{Schema: 1, Links: []link.Link{{Index: 1, Name: "lo", Type: 772}, {Index: 2, Name: "eth0", Type: 1}}}
		s.Host.Facts.Hostname = "n1"
		for i, n := range []string{"mlx5_4", "mlx5_5"} {
			d, l := rail(n, 10+i)
			s.Devices, s.Links = append(s.Devices, d), append(s.Links, l)
		}
		return s
	}
	for _, tt := range []struct {
		name  string
		units map[string]string
		sys   func(*link.Snapshot)
		want  []string // CODE: text | next
	}{
		{name: "OK", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"}},
		{name: "OK an address for each rail", units: map[string]string{
			"10-a": "[Match]\nType=infiniband\n[Network]\nAddress=10.{link:1}.0.{host}/16\n"}},
		{name: "bad one address for two rails", units: map[string]string{
			"10-a": "[Match]\nType=infiniband\n[Network]\nAddress=10.3.0.{host}/16\n"}, want: []string{
			"same-address: ibp4s0 and ibp5s0 get the same address 10.3.0.1 (/etc/systemd/network/10-a.ibnetwork:4:9) | " +
				"put {link} into the address, use HOST/LINK in the table, or match one link"}},
		{name: "bad no unit", want: []string{"no-unit-file: there is no unit file: no link is configured by ibnetworkd | ibnetctl " +
			"edit 10-ibp4s0"}},
		{name: "bad name", units: map[string]string{"10-ib0": "[Match]\nName=ib0\n"}, want: []string{
			"unit-matches-nothing: 10-ib0.ibnetwork matches nothing: no link fits Name=ib0 " +
				"(/etc/systemd/network/10-ib0.ibnetwork:2:6); this host has ibp4s0, ibp5s0 | write Name=ibp4s0, or Type=infiniband for " +
				"every IPoIB link"}},
		{name: "bad near miss", units: map[string]string{"10-x": "[Match]\nName=ibp5so\n"}, want: []string{
			"unit-matches-nothing: 10-x.ibnetwork matches nothing: no link fits Name=ibp5so (/etc/systemd/network/10-x.ibnetwork:2:6); " +
				"this host has ibp4s0, ibp5s0 | write Name=ibp5s0, or Type=infiniband for every IPoIB link"}},
		{name: "bad other key", units: map[string]string{"10-x": "[Match]\nIBDevice=mlx4_0\n"}, want: []string{
			`unit-matches-nothing: 10-x.ibnetwork matches nothing: IBDevice=mlx4_0 ` +
				`(/etc/systemd/network/10-x.ibnetwork:2:10) does not fit mlx5_4 | compare [Match] with: ibnetctl list; ibnetctl ports`}},
		{name: "bad link moved away", units: map[string]string{"10-x": "[Match]\nName=ibp9s0\n", "20-b": "[Match]\nName=ibp4s0\n"},
			sys: func(s *link.Snapshot) { s.Links[3].Parent = 99 }, want: []string{
				"unit-matches-nothing: 10-x.ibnetwork matches nothing: no link fits Name=ibp9s0 (/etc/systemd/network/10-x.ibnetwork:2:6); " +
					"this host has ibp4s0, ibp5s0; port mlx5_5/1 has no interface of its own in this network namespace | " +
					"if it is in another one: ip -n NAMESPACE link set ibp9s0 netns 1; if not: write Name=ibp4s0, or Type=infiniband for " +
					"every IPoIB link"}},
		{name: "bad device moved away", units: map[string]string{"10-x": "[Match]\nIBDevice=mlx4_0\n"},
			sys: func(s *link.Snapshot) { s.Host.RDMAExclusive = true }, want: []string{
				"unit-matches-nothing: 10-x.ibnetwork matches nothing: IBDevice=mlx4_0 (/etc/systemd/network/10-x.ibnetwork:2:10) does not fit " +
					"mlx5_4; RDMA devices of other network namespaces are not seen here (rdma system: netns exclusive) | compare [Match] with: " +
					"ibnetctl list; ibnetctl ports; ip netns exec NAMESPACE rdma dev. Name= and PortGUID= match an IPoIB link wherever its " +
					"RDMA device is"}},
		{name: "bad behind another", units: map[string]string{"10-a": "[Match]\nName=ib*\n", "20-b": "[Match]\nName=ibp5s0\n"}, want: []string{
			"unit-overridden: 20-b.ibnetwork applies to nothing: 10-a.ibnetwork comes first for ibp5s0 | remove one of the two, or " +
				"narrow [Match] of 10-a.ibnetwork"}},
		{name: "OK other host", units: map[string]string{"10-a": "[Match]\nType=infiniband\n", "20-b": "[Match]\nName=ib9\nHost=n2\n"}},
		{name: "OK mistake that has a problem", units: map[string]string{"10-a": "[Match]\nPort=banana\n"}},
		{name: "OK child still to be made", units: map[string]string{"10-a": "[Match]\nName=ibp4s0\n[Partition]\n" +
			"PartitionKey=0x8001\nName=storage\n", "20-b": "[Match]\nName=storage\n", "30-c": "[Match]\nPartitionKey=0x8001\n"}},
		{name: "bad no adapter", units: map[string]string{"10-ib0": "[Match]\nName=ib0\n"}, sys: func(s *link.Snapshot) {
			s.Devices,
				s.Links = nil, s.Links[:2]
		}, want: []string{
			"unit-matches-nothing: 10-ib0.ibnetwork matches nothing: this host has no InfiniBand or RoCE link | ibnetctl diagnose"}},
		{name: "OK port without a link", units: map[string]string{"10-a": "[Match]\nIBDevice=mlx5_4\n"},
			sys: func(s *link.Snapshot) { s.Links = s.Links[:2] }},
		{name: "OK udev has not finished", units: map[string]string{"10-a": "[Match]\nProperty=A=b\n"},
			sys: func(s *link.Snapshot) { s.Host.Udev = true }},
		{name: "bad MLNX_OFED", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"},
			sys: func(s *link.Snapshot) { s.Host.OFEDManager = "/usr/bin/mlnx_interface_mgr.sh" }, want: []string{
				"managed-by-other: MLNX_OFED's /usr/bin/mlnx_interface_mgr.sh also sets the mode and MTU of ibp4s0 and other IPoIB links " +
					"when they appear | write SET_IPOIB_CM=no into /etc/infiniband/openib.conf; or systemctl mask mlnx_interface_mgr@.service"}},
		{name: "bad two fabrics with one " +
			"prefix", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"},
			sys: func(s *link.Snapshot) { s.Devices[1].Ports[0].LID = 10 }, want: []string{
				"same-subnet-prefix: mlx5_4/1 (LID 10, SM LID 1) and mlx5_5/1 (LID 10, SM LID 1) are on two fabrics with one subnet prefix " +
					"0xfe80000000000000: programs that compare prefixes take them for one | give one of the fabrics another prefix: " +
					"SubnetPrefix= in [SubnetManager], or subnet_prefix in opensm.conf"}},
		{name: "bad two places of a subnet manager, if they last", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"},
			sys: func(s *link.Snapshot) { s.Devices[1].Ports[0].SMLID = 12 }, want: []string{
				"if it lasts: same-subnet-prefix: mlx5_4/1 (LID 10, SM LID 1) and mlx5_5/1 (LID 11, SM LID 12) are on two fabrics with " +
					"one subnet prefix 0xfe80000000000000: programs that compare prefixes take them for one | give one of the fabrics another " +
					"prefix: SubnetPrefix= in [SubnetManager], or subnet_prefix in opensm.conf"}},
		{name: "bad one LID is certain", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"},
			sys: func(s *link.Snapshot) {
				s.Devices[1].Ports[0].SMLID = 12
				more := s.Devices[1]
				more.Name, more.Ports = "mlx5_9", slices.Clone(more.Ports)
				more.Ports[0].LID = 10
				s.Devices = append(s.Devices, more)
			}, want: []string{
				"same-subnet-prefix: mlx5_4/1 (LID 10, SM LID 1) and mlx5_9/1 (LID 10, SM LID 12) are on two fabrics with " +
					"one subnet prefix 0xfe80000000000000: programs that compare prefixes take them for one | give one of the fabrics another " +
					"prefix: SubnetPrefix= in [SubnetManager], or subnet_prefix in opensm.conf"}},
		{name: "OK two fabrics with two prefixes", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"}, sys: func(s *link.Snapshot) {
			s.Devices[1].Ports[0].LID, s.Devices[1].Ports[0].SubnetPrefix = 10, 0xfec0<<48|1
		}},
		{name: "OK LMC ranges side by side", units: map[string]string{"10-a": "[Match]\nType=infiniband\n"}, sys: func(s *link.Snapshot) {
			for i := range s.Devices {
				s.Devices[i].Ports[0].LID, s.Devices[i].Ports[0].LMC = ib.LID(8+4*i), 2
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := fstest.MapFS{}
			for n, text := range tt.units {
				fs[n+".ibnetwork"] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
			}
			set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
			s := host()
			if tt.sys != nil {
				tt.sys(s)
			}
			of := link.Governing{Links: map[int]link.Governed{}}
			for i := range s.Links {
				of.Links[s.Links[i].Index] = link.Govern(s, set, &s.Links[i])
			}
			of.Ports = link.GovernPorts(s, set, of.Links, nil)
			var got []string
			for _, n := range link.Notices(s, set, of) {
				lasts := ""
				if n.Settle {
					lasts = "if it lasts: "
				}
				got = append(got, lasts+string(n.Code)+": "+n.Text+" | "+n.Next)
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
