// Package kernel has only a test: a real kernel's ib_sa, ib_ipoib and ib_umad query
// the subnet administrator.
package kernel
