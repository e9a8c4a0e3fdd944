// Package roce decides what concerns the card itself and its Ethernet side: the
// type of a port, the node description, the RoCE version and type of service of
// RDMA-CM, priority flow control, transmission selection, DSCP mapping and
// trust, receive buffers, VLANs, software RDMA devices, and virtual functions
// with their GUIDs.
//
// Plan compares what a unit asks for with a State, which the observer fills from
// devlink, DCB, configfs and sysfs, and gives operations that print as the
// commands an administrator would type. The package is pure: no I/O, no clock.
// Its callers are the planner (as a room of daemon/plan) and the program that
// writes a link's environment file; the operations are carried out by
// daemon/card.
package roce
