// Package fabric is the subnet manager's picture of a subnet: nodes, ports and
// links as index-based values in GUID order.
//
// It owns the model, the ibnetdiscover text form of it and what is wrong with its
// links. It never talks to a network and reads no clock. Discovery builds a Fabric;
// the sweep that owns it enters what the fabric answers, and every computation only
// reads it. A change on the wire makes a new one. Everything is a slice sorted by GUID, so
// that walking a Fabric gives the same order on every run and a subnet of
// 48,000 end ports stays a few tens of megabytes.
//
// Called by every stage of the subnet manager (discover, lid, route, mcast,
// program, sa, engine).
package fabric
