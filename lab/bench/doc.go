// Package bench lets ibnetworkd, systemd-networkd, NetworkManager and ifupdown
// do the same work in the same guest and prints the figures of all and the
// ratios of ours to the others; so it does with ibnetsm and opensm.
//
// The work is measured from outside, on the kernel's own state: a link counts
// as right when a rtnetlink dump or notification says that its flags, MTU, mode
// and address are the wanted ones, whatever the contestant believes, and when it
// still is once the contestant does no more. CPU time is that of a control group
// in which all processes of a contestant run, so that those that have ended
// count; a systemd drop-in that names the group is all that is added to Debian's
// packages. The contestants take turns in several rounds.
//
// `make bench` runs it; nothing here asserts a time.
package bench
