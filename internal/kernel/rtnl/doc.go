// Package rtnl is the rtnetlink client: it dumps links, addresses, routes and
// rules, sends requests that change them, and receives events.
//
// A dump costs one request a kind and decodes without an intermediate form, so
// that reading everything again is cheap. The package decodes attributes itself
// because github.com/jsimonetti/rtnetlink lacks some of them (permanent address,
// parent device, GUIDs of virtual functions, lifetimes) and refuses a rule with
// attributes that it does not know. Requests are that library's messages, with the
// attributes appended that it cannot express.
//
// The package decides nothing and keeps nothing but strings. The daemon's observe
// and apply steps call it; a Conn works in the network namespace of the thread that
// dialled it.
package rtnl
