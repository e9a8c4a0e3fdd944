//go:build race

package route_test

// graphs is how many random graphs are tried; the race detector makes each ten
// times as slow.
const graphs = 300

// every is which part of the cases of long tables is tried.
const every = 5
