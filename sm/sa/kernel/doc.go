// Package kernel holds no code: its test lets a real kernel's ib_sa, ib_ipoib
// and ib_umad ask the subnet administrator.
package kernel
