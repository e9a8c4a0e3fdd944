//go:build !race

package mcast_test

const graphs = 4000
