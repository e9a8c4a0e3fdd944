// Package link holds what the daemon knows and says about links: Snapshot (a
// picture of the system), Op (one change, printed as the command that an
// administrator would type), Plan (what would be done and what is waited for),
// Record (what this program made) and Status (wanted, actual and why, for each
// attribute). It decides addresses, routes, rules and the link's own flags.
//
// The package is pure: it does no I/O, reads no clock, and its functions give
// the same result for the same values. The daemon's observer fills snapshots,
// daemon/plan calls the planners of link, ipoib and roce, the daemon's
// executor carries operations out, and daemon/bus and ibnetctl show Status.
package link
