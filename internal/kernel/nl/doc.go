// Package nl is what the netlink clients of this project share: an attribute
// iterator and builder that allocate nothing of their own, requests that can be
// sent one by one or pipelined, dumps that stream, and group subscriptions that
// report an overrun instead of dying of it.
//
// It stands on github.com/mdlayher/netlink for sockets, message framing and
// extended acknowledgements, and knows no family: rtnl, rdmanl, dcb and devlink
// bring the meaning of the bytes. Integers in netlink are in host order unless
// an attribute says otherwise.
package nl
