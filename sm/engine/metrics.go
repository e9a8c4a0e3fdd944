package engine

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
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
	untrusted := 0
	for _, m := range x.Others {
		if m.Problem != "" {
			untrusted++
		}
	}
	if x.Master != nil && x.Master.Problem != "" {
		untrusted++
	}
	one("untrusted_managers", untrusted)
	one("doubled_lids", x.DoubledLIDs)
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
	one("traps_not_acted_on_total", x.Counters.Quiet)
	one("sa_requests_total", x.Counters.SA)
	one("sa_requests_repeated_total", x.Counters.Again)
	one("sa_requests_busy_total", x.Counters.Busy)
	one("sa_requests_expired_total", x.Counters.Expired)
	pauses, n := &x.Counters.Pauses, uint64(0)
	for i, k := range pauses.AtMost {
		le := "+Inf"
		if n += k; i < len(PauseBounds) {
			le = strconv.FormatFloat(PauseBounds[i].Seconds(), 'g', -1, 64)
		}
		fmt.Fprintf(w, "ibnetsm_pause_seconds_bucket{%s,le=%q} %d\n", l, le, n)
	}
	one("pause_seconds_sum", pauses.Sum.Seconds())
	one("pause_seconds_count", n)
	each := func(name, label string, m map[string]uint64) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(w, "ibnetsm_%s{%s,%s=%q} %d\n", name, l, label, k, m[k])
		}
	}
	each("smp_sent_total", "kind", x.Counters.Sent)
	each("received_total", "kind", x.Counters.Received)
	each("sa_requests_by_attribute_total", "attribute", x.SACounters.Requests)
	each("sa_refused_total", "status", x.SACounters.Errors)
	one("sa_malformed_total", x.SACounters.Malformed)
	one("sa_untrusted_total", x.SACounters.Untrusted)
	one("sa_unknown_sender_total", x.SACounters.Unknown)
	one("sa_reports_total", x.SACounters.Reports)
	one("sa_reports_unsent_total", x.SACounters.Unsent)
}
