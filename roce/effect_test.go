package roce

import (
	"strings"
	"testing"

	"ibnetworkd/link"
)

// An operation that is planned names the driver's side effects.
func TestEffects(t *testing.T) {
	on := link.Target{Link: "eth0", Ifindex: 2}
	for _, tt := range []struct {
		driver string
		op     link.Op
		want   string
	}{
		{"mlx5_core", SetPFC{On: on, Priority: 8}, "goes down and comes up again: mlx5"},
		{"mlx5_core", SetPFC{On: on, Priority: 8, Delay: 5}, ""},
		{"mlx5_core", SetETS{On: on}, ""},
		{"mlx4_core", SetPFC{On: on, Priority: 8}, ""},
		{"hns3", SetPFC{On: on, Priority: 8}, "stops for a moment"},
		{"ice", SetPFC{On: on, Priority: 8}, "ice resets the interface"},
		{"ice", SetETS{On: on}, "ice resets the interface"},
		{"ice", MapDSCP{On: on, DSCP: 26, Priority: 3}, "ice resets the interface"},
		{"mlx5_core", SetVFs{On: on, Old: 4, Count: 8}, "all 4 virtual functions"},
		{"mlx5_core", SetVFs{On: on, Count: 8}, ""},
		{"mlx5_core", SetVFs{On: link.Target{Link: "eth1", Ifindex: 3}, Count: 8}, "RoCE LAG of bond0 ends"},
	} {
		s := &link.Snapshot{Links: []link.Link{{Index: 2, Name: "eth0", Driver: tt.driver},
			{Index: 3, Name: "eth1", Driver: tt.driver, Master: 4}, {Index: 4, Name: "bond0", Bond: &link.Bond{}}}}
		b := link.NewBuilder(s, &link.Record{}, nil)
		if !b.Do(tt.op) {
			t.Fatal(b.Plan)
		}
		if got := b.Plan.Steps[0].Effect; got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s of %s: %q, want %q", tt.op, tt.driver, got, tt.want)
		}
	}
}
