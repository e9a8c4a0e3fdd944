// Package dhcp is the DHCP client of a link as a state machine: RFC 2131 with RFC 4390
// (IPoIB), RFC 4361 (client identifiers), RFC 3442 (routes), RFC 3397 (search
// domains) and RFC 5227 (address conflicts). It is pure: an event goes in, frames to
// send come out; the time is an argument, and randomness comes from a seed.
package dhcp
