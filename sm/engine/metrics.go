package engine

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// WriteMetrics writes the counters in Prometheus' text form.
func (x *Snapshot) WriteMetrics(w io.Writer) {
	l := fmt.Sprintf(`ibdev=%q,port="%d"`, x.Device, x.Port)
	one := func(name string, v any) { fmt.Fprintf(w, "ibnetsm_%s{%s} %v\n", name, l, v) }
	master := 0
	if x.State == "Master" {
		master = 1
	}
	one("master", master)
	one("nodes", x.Nodes)
	one("switches", x.Switches)
	one("links", x.Links)
	one("multicast_groups", x.Groups)
	one("sweeps_total", x.Sweeps)
	one("last_sweep_seconds", x.LastSweep.Duration.Seconds())
	one("last_sweep_smps", x.LastSweep.SMPs)
	one("smps_sent_total", x.Counters.SMPs)
	one("smps_repeated_total", x.Counters.Repeats)
	one("smps_unanswered_total", x.Counters.Timeouts)
	one("smps_refused_total", x.Counters.Errors)
	one("mads_dropped_total", x.Counters.Dropped)
	one("traps_total", x.Counters.Traps)
	one("sa_requests_total", x.Counters.SA)
	for _, k := range slices.Sorted(maps.Keys(x.Counters.Sent)) {
		fmt.Fprintf(w, "ibnetsm_smp_sent_total{%s,kind=%q} %d\n", l, k, x.Counters.Sent[k])
	}
	for _, k := range slices.Sorted(maps.Keys(x.Counters.Received)) {
		fmt.Fprintf(w, "ibnetsm_received_total{%s,kind=%q} %d\n", l, k, x.Counters.Received[k])
	}
}
