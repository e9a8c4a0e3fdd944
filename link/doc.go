// Package link has the model of links: Snapshot (what was read of the system), Op
// (one change, printed as the command that an administrator would type), Plan (the
// operations and what is waited for), Record (what this program made) and Status
// (wanted, actual and why, for each attribute). It plans addresses, routes, rules
// and the link's own flags.
//
// The package is pure: it does no I/O and reads no clock. The daemon's observer
// fills snapshots, daemon/plan calls the planners of link, ipoib and roce, the
// daemon's executor carries operations out, and daemon/bus and ibnetctl show Status.
package link
