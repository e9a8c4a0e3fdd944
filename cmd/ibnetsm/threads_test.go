package main

import (
	"slices"
	"testing"

	"ibnetworkd/sm/serve"
)

// Each subnet has a thread, and each long computation two more.
func TestThreads(t *testing.T) {
	var set []int
	n := &threads{ports: map[serve.Port]bool{}, set: func(n int) { set = append(set, n) }}
	n.port(serve.Port{Device: "mlx5_0", Num: 1})
	n.compute(true)
	n.port(serve.Port{Device: "mlx5_1", Num: 1})
	n.port(serve.Port{Device: "mlx5_1", Num: 1})
	n.compute(false)
	n.compute(false) // one that ended before it was counted
	n.compute(true)
	if want := []int{3, 4, 2}; !slices.Equal(set, want) {
		t.Errorf("threads were set to %v, want %v", set, want)
	}
}
