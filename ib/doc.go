// Package ib has the value types of the InfiniBand architecture that every
// package of the project shares: GUIDs, GIDs, LIDs, partition keys, MTUs, rates,
// port states and IPoIB hardware addresses.
//
// All types are small comparable values. Inside the program a value has no
// byte order; the codec at each edge (MAD, netlink, sysfs) knows its own. The
// package imports the standard library only, does no I/O and never panics on
// input. Section numbers are those of the InfiniBand Architecture
// Specification, volume 1, release 1.4 ("IBTA").
package ib
