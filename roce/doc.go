// Package roce plans the settings of the card itself and its Ethernet side: the
// type of a port, the node description, the RoCE version and type of service of
// RDMA-CM, priority flow control, transmission selection, DSCP mapping and
// trust, receive buffers, VLANs, software RDMA devices, and virtual functions
// with their GUIDs.
//
// Plan compares a unit with a State, which the observer fills from devlink, DCB,
// configfs and sysfs, and yields operations that print as the commands an
// administrator would type. The package is pure: no I/O, no clock. Its callers are
// daemon/plan and daemon/envfile; daemon/card carries the operations out.
package roce
