package smctl

import (
	"math"
	"time"

	"ibnetworkd/ib"
)

// spreadLambda shapes the density of Spread. With 7, one port in a thousand is in
// the earliest tenth of the window.
const spreadLambda = 7

// spread is the part of window that the port with this GUID waits on top of
// its delay, in [0, window).
//
// The density grows as exp(7 t/window): the timers of suppressed multicast
// feedback (Nonnenmacher and Biersack, "Optimal Multicast Feedback", 1998).
// A uniform density would have one port in window/n ask first and many more
// before the first can be seen; this one keeps the number that go before the
// first is seen nearly constant from two ports to thousands.
// The GUID takes the place of randomness, so that a restart of the daemon
// changes nothing and the order is known to tests.
func spread(guid ib.GUID, window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	u := float64(mix(uint64(guid))>>11) / (1 << 53)
	t := math.Log1p(u*math.Expm1(spreadLambda)) / spreadLambda
	d := time.Duration(t * float64(window))
	return min(d, window-1)
}

// mix is the finaliser of splitmix64: vendors count GUIDs up, and neighbours
// must not wait alike.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
