//go:build !race

package route_test

const graphs = 2000

const every = 1
