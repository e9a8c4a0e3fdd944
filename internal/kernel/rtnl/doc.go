// Package rtnl is the rtnetlink client: what links, addresses, routes and rules
// there are, requests that change them, and events that say that something
// changed.
//
// A dump costs one request a kind and decodes without an intermediate form, so
// that looking at everything again is cheap; it reads attributes itself because
// github.com/jsimonetti/rtnetlink lacks some of them (permanent address, parent
// device, GUIDs of virtual functions, lifetimes) and refuses a rule that it
// does not know all of. Requests are that library's messages, with the
// attributes appended that it cannot express.
//
// The package decides nothing and remembers nothing but strings. Its caller is
// the daemon's observe and apply steps; a Conn works in the network namespace
// of the thread that dialled it.
package rtnl
