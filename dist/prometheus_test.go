package dist

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// exprs are the expressions of the dashboard.
func exprs(t *testing.T) []string {
	t.Helper()
	text, err := Files.ReadFile("prometheus/ibnetworkd.dashboard.json")
	testkit.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	testkit.NoError(t, json.Unmarshal(text, &board))
	var out []string
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: no title, no target, or its number is used twice", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, e := range p.Targets {
			out = append(out, e.Expr)
		}
	}
	if len(out) < 10 {
		t.Fatalf("only %d expressions", len(out))
	}
	return out
}

// The alerts and the dashboard ask for metrics that exist.
func TestNamesOfMetrics(t *testing.T) {
	doc := testkit.ReadFile(t, "../docs/metrics.md")
	rules, err := Files.ReadFile("prometheus/ibnetworkd.rules.yml")
	testkit.NoError(t, err)
	// Counters of the adapter, named as in sysfs (drivers/infiniband/core/sysfs.c).
	hardware := map[string]bool{}
	for _, n := range strings.Fields("symbol_error link_error_recovery link_downed port_rcv_errors port_rcv_data port_xmit_data") {
		hardware["ibnetwork_port_"+n+"_total"] = true
	}
	used := 0
	for _, n := range regexp.MustCompile(`ibnetwork_[a-z_]+`).FindAllString(string(rules)+strings.Join(exprs(t), "\n"), -1) {
		used++
		if !hardware[n] && !strings.Contains(string(doc), "`"+n+"`") {
			t.Errorf("%s is not in docs/metrics.md", n)
		}
	}
	if used < 20 {
		t.Errorf("only %d names were found", used)
	}
}

// Prometheus' own tool accepts the rules and the dashboard's expressions, and the
// alerts fire when they should.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian package prometheus)")
	}
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, e := range exprs(t) {
		e = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(e)
		b.WriteString("  - record: x\n    expr: '" + e + "'\n    labels: {n: '" + strings.Map(func(r rune) rune {
			if r == '\'' || r == '\n' {
				return -1
			}
			return r
		}, e) + "'}\n")
	}
	board := filepath.Join(dir, "dashboard.yml")
	testkit.WriteFile(t, board, b.String())
	for _, args := range [][]string{
		{"check", "rules", "prometheus/ibnetworkd.rules.yml"},
		{"check", "rules", board},
		{"test", "rules", "prometheus/ibnetworkd.rules.test.yml"},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}
