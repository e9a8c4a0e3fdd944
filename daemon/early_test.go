package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"ibnetworkd/link"
)

func TestFamily(t *testing.T) {
	type l struct{ index, parent int }
	of := func(x *l) (int, int) { return x.index, x.parent }
	all := []l{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {10, 2}, {11, 2}, {12, 3}, {13, 99}}
	for _, c := range []struct {
		n    int
		want []int
	}{{0, nil}, {8, nil}, {9, nil}, {1, []int{1}}, {2, []int{1, 2, 10, 11}}, {4, []int{1, 2, 10, 11}}, {5, []int{1, 2, 3, 10, 11, 12}}} {
		if got := slices.Sorted(maps.Keys(family(all, c.n, of))); !slices.Equal(got, c.want) {
			t.Errorf("first %d: %v, want %v", c.n, got, c.want)
		}
	}
}

// With many links the start goes in two steps, and nothing but the order of the
// operations reports.
func TestFirstLinksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * firstLinks
		texts := map[string]string{}
		for i := range n {
			texts[fmt.Sprintf("10-%03d.ibnetwork",
				i)] = fmt.Sprintf("[Match]\nName=ib%d\n[Network]\nAddress=10.0.%d.1/24\n[Partition]\nPartitionKey=0x8001\n", i, i)
		}
		sys, keep := system(t, n), &notes{}
		r := launch(t, sys, keep, texts)
		defer r.stop()
		ops := sys.take()
		last := func(name string) (at int) {
			for i, op := range ops {
				if strings.HasSuffix(op, "dev "+name) {
					at = i
				}
			}
			return at
		}
		if first := last("ib0"); first == 0 || first > len(ops)/2 || last(fmt.Sprintf("ib%d", n-1)) <= first {
			t.Errorf("the first address is operation %d of %d", first, len(ops))
		}
		var links []string
		for _, s := range r.Report().Links {
			if s.State != link.StateConfigured {
				t.Errorf("%s is %s: %v", s.Name, s.State, s.Reasons)
			}
			links = append(links, s.Name)
		}
		if len(links) != 2*n {
			t.Errorf("%d links are told of, want %d", len(links), 2*n)
		}
		if strings.Count(r.log.String(), "ib0: new -> configured") != 1 || strings.Contains(r.log.String(), "pending") {
			t.Error("the log tells of the steps")
		}
		if keep.reports != 1 {
			t.Errorf("%d reports written", keep.reports)
		}
	})
}

// A rule that the last link's unit wants is not taken away for the time until
// that link is read.
func TestFirstLinksLeaveRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * firstLinks
		texts := map[string]string{"10.ibnetwork": fmt.Sprintf("[Match]\nName=ib%d\n[Network]\nAddress=10.0.0.1/24\n"+
			"[RoutingPolicyRule]\nFrom=10.0.0.0/24\nTable=7\nPriority=100\n", n-1)}
		sys, keep := system(t, n), &notes{}
		r := launch(t, sys, keep, texts)
		if ops := strings.Join(sys.take(), "\n"); !strings.Contains(ops, "ip rule add") {
			t.Fatalf("no rule was made:\n%s", ops)
		}
		r.stop()
		r = launch(t, sys, keep, texts)
		defer r.stop()
		if ops := sys.take(); len(ops) > 0 {
			t.Errorf("ops of a restart: %q", ops)
		}
	})
}
