// Package kernel has the thin clients of the kernel below it, one package
// each: rtnl (links, addresses, routes, rules), rdmanl (RDMA devices), uevent,
// udevdb, sysfs, procsys, devlink, dcb, ethtool, configfs, umad and modules; nl is
// what the netlink clients share.
//
// A client turns bytes into values and values into bytes, keeps the kernel's
// words in its errors, and decides nothing: it knows nothing of links to be
// configured or of plans, and never imports the packages that do. Every decoder has
// a fuzz target and a bound on what it allocates.
//
// The package itself is empty; its tests run the clients on a kernel with a
// software InfiniBand fabric and compare their requests with those of iproute2.
package kernel
