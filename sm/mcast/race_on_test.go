//go:build race

package mcast_test

// graphs is how many random graphs are tried; the race detector makes each ten
// times as slow, and the code under test starts no goroutine.
const graphs = 400
