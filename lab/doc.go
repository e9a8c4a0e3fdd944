// Package lab runs tests on a real Linux kernel that has a real InfiniBand
// stack and no hardware.
//
// A scenario is an ordinary Go test.  It calls [Run] with a [Config] and a
// function; the function runs inside a guest that Run boots for it, as root,
// beside the software InfiniBand fabric of the swib module:
//
//	func TestPing(t *testing.T) {
//		lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2}, func(g *lab.G) {
//			g.SM(lab.SM{})
//			a, b := g.Host("a"), g.Host("b")
//			a.Take("ib0", "10.9.0.1/24")
//			b.Take("ib1", "10.9.0.2/24")
//			a.Ping("10.9.0.2")
//		})
//	}
//
// The guest's first process is the test binary itself: importing this package
// is all that is needed for that.  On the host, Run builds the kernel and the
// userland if the cache does not have them, boots the guest, passes its output
// on, and fails the test if the function failed, the kernel complained, or the
// time was up.  Nothing that a guest does outlives it.
//
// Code of a test before its call of Run runs on both sides; [InGuest] reports
// them apart.
package lab
