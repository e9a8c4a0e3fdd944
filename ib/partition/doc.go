// Package partition turns what an administrator wrote about partitions into
// P_Key tables and multicast groups.
//
// It owns the reading of partitions.conf (the format that opensm documents in
// partition-config.txt), a one-line form for unit files, the choice of each
// port's P_Key table, and the parameters of the groups that exist before
// anybody joins them, the IPoIB broadcast group of each partition first of all
// (RFC 4391 section 5). It never opens a file, sends nothing and knows no
// fabric type: callers hand it ports as plain values and get plain values back.
// Unit files and the subnet manager share it; sm/pkey applies it to a fabric.
//
// All functions are pure and deterministic: the order of the ports given never
// shows in a result.
package partition
