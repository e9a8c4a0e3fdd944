package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// Prometheus itself, if it is installed, with the configuration of docs/metrics.md and
// the alert rules of the package: it scrapes the endpoint, loads the rules, and knows
// a host that gives no metrics from one that does.
func TestPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed (Debian package prometheus)")
	}
	page := testkit.ReadFile(t, "../../docs/metrics.md")
	block := regexp.MustCompile("(?s)```yaml\n(rule_files:.*?)```").FindSubmatch(page)
	rules, err := os.ReadFile("../../dist/prometheus/ibnetworkd.rules.yml")
	if block == nil || err != nil {
		t.Fatalf("no configuration of Prometheus in docs/metrics.md, or no rules: %v", err)
	}
	l, err := Listen("127.0.0.1:0")
	testkit.NoError(t, err)
	c := New("1.0", time.Now(), func(string, int) map[string]uint64 { return map[string]uint64{"symbol_error": 3} })
	c.ObservePorts(time.Now(), []link.PortStatus{{IBDevice: "mlx5_0", Port: 1, State: "Initializing", PortGUID: "0x1"}})
	served(t, l, func() []byte { return c.Text(time.Now()) }, func(err error) { t.Error(err) })
	free := func() string {
		x, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.NoError(t, err)
		defer x.Close()
		return x.Addr().String()
	}
	dir, api, closed := t.TempDir(), free(), free()
	text := strings.NewReplacer("node1:9717", l.Addr().String(), "node2:9717", closed).Replace(string(block[1]))
	if strings.Contains(text, ":9717") || strings.Count(text, "127.0.0.1:") != 2 {
		t.Fatalf("the targets of docs/metrics.md: %s", text)
	}
	for name, data := range map[string]string{"ibnetworkd.rules.yml": string(rules),
		"prometheus.yml": "global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}\n" + text} {
		testkit.WriteFile(t, filepath.Join(dir, name), data)
	}
	p := exec.CommandContext(t.Context(), program, "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+api)
	var log strings.Builder
	p.Stdout, p.Stderr = &log, &log
	testkit.NoError(t, p.Start())
	end := func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	defer end()
	ask := func(call string) string {
		r, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + api + "/api/v1/" + call)
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		data, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		return string(data)
	}
	wait := func(what, call string, want ...string) {
		t.Helper()
		got := ""
		for until := time.Now().Add(90 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
			got = ask(call)
			missing := ""
			for _, w := range want {
				if !strings.Contains(got, w) {
					missing = w
				}
			}
			if missing == "" {
				return
			}
		}
		end()
		t.Fatalf("%s: %q is not in %s\n%s", what, want, got, log.String())
	}
	query := func(q string) string { return "query?query=" + url.QueryEscape(q) }
	wait("the host that serves", query(fmt.Sprintf(`up{job="ibnetworkd",instance=%q}`, l.Addr())), `"1"]`)
	wait("the host that does not", query(fmt.Sprintf(`up{job="ibnetworkd",instance=%q}`, closed)), `"0"]`)
	wait("a port", query(`ibnetwork_port_state{device="mlx5_0",port="1",state="Initializing"}`), `"1"]`)
	wait("a counter", query(`ibnetwork_port_symbol_error_total`), `"3"]`)
	wait("the alerts, which wait for their time", "alerts", `"alertname":"IBPortInitializing"`, `"alertname":"IBNotScraped"`)
	if r := ask("rules"); strings.Count(r, `"health":"ok"`) != strings.Count(string(rules), "- alert:") {
		t.Errorf("rules: %s", r)
	}
}
