//go:build !race

package route_test

const graphs = 4000
