// Package bench lets ibnetworkd and systemd-networkd do the same work in the
// same guest and prints both figures and their ratio.
//
// The work is measured from outside, on the kernel's own state: a link counts
// as right when a rtnetlink dump or notification says that its flags, MTU, mode
// and address are the wanted ones, whatever the daemon believes. CPU time is
// that of the service's control group. Runs of the two are interleaved.
//
// `make bench` runs it; nothing here asserts a time.
package bench
