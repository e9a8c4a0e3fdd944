// Package nl is what the netlink clients of this project share: an attribute
// iterator and builder that do not allocate, requests that can be sent one by one
// or pipelined, dumps that stream, and group subscriptions that report an overrun
// and survive it.
//
// It uses github.com/mdlayher/netlink for messages and extended acknowledgements, on sockets of
// its own, which take several datagrams in one system call. It knows no family: rtnl, rdmanl,
// dcb, devlink and ethtool interpret the bytes. Integers in netlink are in host order unless
// an attribute says otherwise.
package nl
