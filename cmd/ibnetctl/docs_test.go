package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/units"
)

// Every unit in the documentation must be free of problems: people copy them.
func TestUnitsInDocumentation(t *testing.T) {
	pages, _ := filepath.Glob("../../docs/tasks/*.md")
	pages = append(pages, "../../README.md")
	n := 0
	for _, p := range pages {
		text := testkit.ReadFile(t, p)
		for i, block := range strings.Split(string(text), "```ini\n")[1:] {
			body, _, _ := strings.Cut(block, "```")
			// Two files side by side: the left one is ours.
			lines := strings.Split(body, "\n")
			for j, l := range lines {
				if k := strings.Index(l, "      "); k >= 0 && !strings.HasPrefix(strings.TrimSpace(l), "#") && strings.Contains(body, ".network\n") {
					lines[j] = l[:k]
				}
				lines[j] = strings.TrimSpace(lines[j])
			}
			body = strings.Join(lines, "\n")
			if strings.Contains(body, "[keyfile]") || strings.Contains(body, "Name=ib*\n[Link]\nUnmanaged") ||
				strings.HasPrefix(body, "# /etc/dnsmasq.d/") || strings.HasPrefix(body, "# /etc/systemd/networkd") {
				continue // another program's
			}
			if !strings.Contains(body, "[Match]") {
				body = "[Match]\nName=ib0\n" + body
			}
			n++
			if _, problems := units.VerifyFile("x.ibnetwork", []byte(body)); len(problems) > 0 {
				t.Errorf("%s, example %d:\n%s\n%v", p, i+1, body, problems)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d examples were found", n)
	}
}

// The manual pages go through man without a warning.
func TestManPagesAreClean(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed")
	}
	pages, _ := filepath.Glob("../../docs/man/*.[1-8]")
	if len(pages) < 5 {
		t.Errorf("only %d pages: %q", len(pages), pages)
	}
	for _, p := range pages {
		var text, warnings bytes.Buffer
		c := exec.Command("man", "--warnings", "-E", "UTF-8", "-Tutf8", "-l", p)
		c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MAN_KEEP_FORMATTING=", "MANPAGER=cat")
		c.Stdout, c.Stderr = &text, &warnings
		if err := c.Run(); err != nil || warnings.Len() > 0 || text.Len() < 1000 {
			t.Errorf("%s: %v, %d bytes\n%s", p, err, text.Len(), warnings.String())
		}
	}
}
