package link

import "testing"

func TestRules(t *testing.T) {
	rule := Rule{Family: 4, Priority: 32765, From: prefix("10.0.0.0/8"), Table: 7, Type: RuleToTable, SuppressPrefix: -1,
		SuppressIfGroup: -1, Protocol: ProtoStatic}
	asked := rule
	asked.Priority = 0
	testPlans(t, []planCase{
		{name: "OK every key", unit: "[RoutingPolicyRule]\nFrom=10.0.0.0/8\nTo=10.9.0.0/16\nTypeOfService=16\nTable=7\n" +
			"Priority=100\nFirewallMark=7/0xff\nIncomingInterface=ib0\nOutgoingInterface=eth0\n" +
			"SourcePort=100-200\nDestinationPort=80\nIPProtocol=tcp\nInvertRule=yes\nUser=0-1000\nSuppressPrefixLength=8\n" +
			"SuppressInterfaceGroup=3\n", want: "" +
			"ip rule add not from 10.0.0.0/8 to 10.9.0.0/16 tos 0x10 fwmark 0x7/0xff iif ib0 oif eth0 uidrange 0-1000 ipproto 6 " +
			"sport 100-200 dport 80 priority 100 protocol static table 7 suppress_prefixlength 8 suppress_ifgroup 3\n"},
		{name: "OK both families", unit: "[RoutingPolicyRule]\nFamily=both\nTable=7\nPriority=100\n", want: "" +
			"ip rule add from all priority 100 protocol static table 7\n" +
			"ip -6 rule add from all priority 100 protocol static table 7\n"},
		{name: "OK other actions", unit: "[RoutingPolicyRule]\nPriority=10\nGoTo=30000\nFrom=10.0.0.0/8\n[RoutingPolicyRule]\n" +
			"Priority=11\nType=blackhole\nFrom=10.0.0.0/8\n" +
			"[RoutingPolicyRule]\nPriority=12\nType=unreachable\nFrom=10.0.0.0/8\n[RoutingPolicyRule]\nPriority=13\nType=prohibit\n" +
			"From=10.0.0.0/8\n[RoutingPolicyRule]\nPriority=14\nL3MasterDevice=yes\nFrom=10.0.0.0/8\n", want: "" +
			"ip rule add from 10.0.0.0/8 priority 10 protocol static goto 30000\n" +
			"ip rule add from 10.0.0.0/8 priority 11 protocol static blackhole\n" +
			"ip rule add from 10.0.0.0/8 priority 12 protocol static unreachable\n" +
			"ip rule add from 10.0.0.0/8 priority 13 protocol static prohibit\n" +
			"ip rule add from 10.0.0.0/8 priority 14 protocol static l3mdev\n"},
		{name: "OK without a priority the kernel's own is " +
			"found", unit: "[RoutingPolicyRule]\nFrom=10.0.0.0/8\nTable=7\n", sys: func(s *Snapshot, _ *Record) { s.Rules = []Rule{rule} }},
		{name: "OK and goes with it, while another's stays", sys: func(s *Snapshot, r *Record) {
			theirs := rule
			theirs.Priority, theirs.Protocol = 100, 0
			s.Rules, r.Rules = []Rule{theirs, rule}, []Rule{asked}
		}, want: "ip rule delete from 10.0.0.0/8 priority 32765 protocol static table 7\n"},
		{name: "OK the kernel chooses a priority", unit: "[RoutingPolicyRule]\nFrom=10.0.0.0/8\nTable=7\n", want: "ip rule add from " +
			"10.0.0.0/8 priority 0 protocol static table 7\n"},
		{name: "bad no IPv6", unit: "[RoutingPolicyRule]\nFamily=ipv6\nTable=7\nPriority=100\n", sys: func(s *Snapshot,
			_ *Record) {
			s.Host.NoIPv6 = true
		}, want: "" +
			"# blocked: host: this kernel has no IPv6\n" +
			"#   then: ip -6 rule add from all priority 100 protocol static table 7\n"},
	})
}
