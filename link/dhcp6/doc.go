// Package dhcp6 is the DHCPv6 client of a link as a state machine: RFC 8415 for one address
// (IA_NA) or for information alone, with RFC 3646 (name servers), RFC 4704 (the host's
// name), RFC 4075 and RFC 5908 (NTP). It is pure, as package dhcp is: an event goes in,
// packets to send come out; the time is an argument, and randomness comes from a seed.
package dhcp6
