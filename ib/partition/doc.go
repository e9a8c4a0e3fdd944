// Package partition computes P_Key tables and multicast groups from partition
// rules.
//
// It parses partitions.conf (the format that opensm documents in
// partition-config.txt) and the one-line form of unit files, computes each port's
// P_Key table, and lists the groups to create in advance with their parameters,
// above all the IPoIB broadcast group of each partition (RFC 4391 section 5). It
// does no I/O and knows no fabric type: ports are plain values. Unit files and the
// subnet manager share it; sm/pkey applies it to a fabric.
//
// All functions are pure, and no result depends on the order of the ports.
package partition
