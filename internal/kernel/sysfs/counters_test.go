package sysfs

import (
	"maps"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
)

func TestCounters(t *testing.T) {
	root := t.TempDir()
	for dir, files := range map[string]map[string]string{
		"infiniband/mlx5_0/ports/1/counters":    {"symbol_error": "7\n", "VL15_dropped": "2\n", "broken": "x\n", "with-dash": "1\n"},
		"infiniband/mlx5_0/ports/1/hw_counters": {"lifespan": "10\n", "out_of_buffer": "3\n"},
		"net/ib0/statistics":                    {"rx_bytes": "18446744073709551615\n", "tx_errors": "0\n"},
	} {
		dir = filepath.Join(root, "sys/class", dir)
		for n, v := range files {
			testkit.WriteFile(t, filepath.Join(dir, n), v)
		}
	}
	f := New(root)
	for _, tt := range []struct{ got, want map[string]uint64 }{
		{f.PortCounters("mlx5_0", 1), map[string]uint64{"symbol_error": 7, "vl15_dropped": 2, "out_of_buffer": 3}},
		{f.LinkCounters("ib0"), map[string]uint64{"rx_bytes": 1<<64 - 1, "tx_errors": 0}},
		{f.PortCounters("mlx5_0", 2), map[string]uint64{}},
		{f.PortCounters("../mlx5_0", 1), map[string]uint64{}},
		{f.LinkCounters("../net/ib0"), map[string]uint64{}},
	} {
		if !maps.Equal(tt.got, tt.want) {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
}
