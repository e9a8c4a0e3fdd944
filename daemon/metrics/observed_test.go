package metrics

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

func fill(c *Collector) string {
	c.ObservePorts(time.Unix(1000, 0), []link.PortStatus{{IBDevice: "mlx5_0", Port: 1, State: "Initializing", PortGUID: "0x1"}})
	c.ObserveLinks([]link.Status{{Name: "ib0", State: link.StateConfigured, Carrier: true}}, nil)
	c.ObserveSM([]smctl.Status{{PortGUID: "0x1", IBDevice: "mlx5_0", Port: 1, Phase: "master", Starts: 2}})
	c.Reloaded(3)
	return string(c.Text(time.Unix(2000, 0)))
}

// One observation has states, and nothing that needs a past: a scrape would take
// a start time of now for a restart.
func TestObservedOnce(t *testing.T) {
	text := fill(NewObserved("1.0", func(string, int) map[string]uint64 { return map[string]uint64{"symbol_error": 3} }))
	for _, want := range []string{"ibnetwork_info{", `state="Initializing"} 1`, "ibnetwork_unit_problems 3", "ibnetwork_link_state{",
		`ibnetwork_port_symbol_error_total{device="mlx5_0",port="1"} 3`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, counted := range []string{"start_time", "unit_reads", "initialize_seconds", "state_changes", "sm_changes", "carrier_lost",
		"rejoins", "operations"} {
		if strings.Contains(text, counted) {
			t.Errorf("%q was not counted, and is printed", counted)
		}
	}
}

// Prometheus' own checker finds nothing to correct but names that come from sysfs.
func TestPromtoolMetrics(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian package prometheus)")
	}
	c := exec.Command(promtool, "check", "metrics")
	c.Stdin = strings.NewReader(fill(New("1.0", time.Unix(900, 0),
		func(string, int) map[string]uint64 { return map[string]uint64{"symbol_error": 3} })))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
