package metrics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

func TestText(t *testing.T) {
	t0 := time.Unix(1000, 0)
	c := New("1.0 \"x\"\n", t0, func(string, int) map[string]uint64 {
		return map[string]uint64{"port_rcv_data": 1 << 60, "symbol_error": 3}
	})
	p := link.PortStatus{IBDevice: "mlx5_0", Port: 1, State: "Initializing", PortGUID: "0x1"}
	c.ObservePorts(t0, []link.PortStatus{p})
	p.State, p.SMLID, p.LID = "Active", 1, 5
	c.ObservePorts(t0.Add(7*time.Second), []link.PortStatus{p})
	p.State, p.SMLID = "Initializing", 0
	c.ObservePorts(t0.Add(20*time.Second), []link.PortStatus{p})
	p.State, p.SMLID = "Active", 9
	c.ObservePorts(t0.Add(21*time.Second), []link.PortStatus{p})
	p.State = "Initializing"
	c.ObservePorts(t0.Add(30*time.Second), []link.PortStatus{p})
	l := link.Status{Name: "ib0", State: link.StateConfigured, Carrier: true, Online: true,
		DHCP: &link.DHCP{Drops: link.DHCPDrops{Malformed: 2, Contradictory: 1}}}
	for _, carrier := range []bool{true, false, true} {
		l.Carrier = carrier
		c.ObserveLinks([]link.Status{l}, nil)
	}
	c.Op(link.SetMTU{}, nil)
	c.Op(link.SetMTU{}, errors.New("no"))
	c.Op(link.AddChild{}, nil)
	c.ObserveSM([]smctl.Status{{PortGUID: "0x1", IBDevice: "mlx5_0", Port: 1, Phase: "master", WorkerState: "active", Starts: 2}})
	c.Reloaded(4)
	text := string(c.Text(t0.Add(32 * time.Second)))
	for _, want := range []string{
		`ibnetwork_info{version="1.0 \"x\"\n"} 1`,
		`ibnetwork_port_initialize_seconds_total{device="mlx5_0",port="1"} 10`,
		`ibnetwork_port_state{device="mlx5_0",port="1",state="Initializing"} 1`,
		`ibnetwork_port_state{device="mlx5_0",port="1",state="Active"} 0`,
		`ibnetwork_port_state_changes_total{device="mlx5_0",port="1"} 4`,
		`ibnetwork_port_sm_changes_total{device="mlx5_0",port="1"} 1`,
		`ibnetwork_port_port_rcv_data_total{device="mlx5_0",port="1"} 1152921504606846976`,
		`ibnetwork_link_rejoins_total{link="ib0"} 1`,
		`ibnetwork_dhcp_unusable_answers_total{link="ib0",family="ipv4"} 3`,
		`ibnetwork_link_carrier_lost_total{link="ib0"} 1`,
		`ibnetwork_operations_total{operation="SetMTU",result="failed"} 1`,
		`ibnetwork_operations_total{operation="AddChild",result="done"} 1`,
		`ibnetwork_subnet_manager_running{device="mlx5_0",port="1"} 1`,
		`ibnetwork_unit_problems 4`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	// The reference parser must take it.
	parser := expfmt.NewTextParser(model.UTF8Validation)
	fams, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Logf("%d families", len(fams))
	c.ObservePorts(t0.Add(40*time.Second), nil)
	if strings.Contains(string(c.Text(t0.Add(40*time.Second))), "mlx5_0\",port=\"1\",state") {
		t.Error("a port that is gone is still there")
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := Listen("unix:" + path)
	testkit.NoError(t, err)
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a socket in use was taken over")
	}
	done := make(chan error)
	go func() {
		done <- Serve(ctx, l, func() []byte { return []byte("x 1\n") }, func(err error) { t.Error(err) })
	}()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return net.Dial("unix", path)
	}}}
	r, err := client.Get("http://localhost/metrics")
	testkit.NoError(t, err)
	b, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if string(b) != "x 1\n" {
		t.Errorf("got %q", b)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTextfileLeavesNothingBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ibnetwork.prom")
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan struct{}, 8)
	done := make(chan error)
	go func() {
		done <- Textfile(ctx, path, time.Millisecond, func() []byte {
			select {
			case wrote <- struct{}{}:
			default:
			}
			return []byte("x 1\n")
		}, func(err error) { t.Error(err) })
	}()
	<-wrote
	<-wrote
	if b, err := os.ReadFile(path); err != nil || string(b) != "x 1\n" {
		t.Errorf("%q %v", b, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is still there")
	}
}

// The daemon's loop counts its operations while an adapter that hangs is read.
func TestSlowAdapterHoldsNobodyUp(t *testing.T) {
	reading, end := make(chan struct{}), make(chan struct{})
	c := New("1", time.Unix(0, 0), func(string, int) map[string]uint64 {
		close(reading)
		<-end
		return map[string]uint64{"symbol_error": 7}
	})
	c.ObservePorts(time.Unix(0, 0), []link.PortStatus{{IBDevice: "mlx5_0", Port: 1, State: "Active"}})
	text := make(chan string, 1)
	go func() { text <- string(c.Text(time.Unix(1, 0))) }()
	<-reading
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		c.Op(link.SetMTU{}, nil)
	}()
	select {
	case <-counted:
	case <-time.After(10 * time.Second):
		t.Error("counting waits for the adapter")
	}
	close(end)
	<-counted
	if s := <-text; !strings.Contains(s, `ibnetwork_port_symbol_error_total{device="mlx5_0",port="1"} 7`) {
		t.Errorf("the counter is not there:\n%s", s)
	}
}

// An address that a link gets later can be listened at.
func TestListenAtAnAddressToCome(t *testing.T) {
	for _, at := range []string{"192.0.2.7:0", "[2001:db8::7]:0"} {
		l, err := Listen(at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		_ = l.Close()
	}
}

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
