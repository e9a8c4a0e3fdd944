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

// "ibnetctl verify" finds nothing in an example, with those that it is used with and the
// table that it names.
func TestVerifyExamples(t *testing.T) {
	const dir = "../../docs/examples/"
	files, _ := filepath.Glob(dir + "*.ibnetwork")
	if len(files) < 20 {
		t.Fatalf("only %d examples: %q", len(files), files)
	}
	with := map[string]string{"32-nexthop-rail0": "33-nexthop-rail1", "35-bond": "36-bond-ports", "37-bond-timeout": "36-bond-ports",
		"40-partitions": "41-storage", "63-roce-lag-bond": "62-roce-lag", "65-vlan-address": "64-vlan",
		"68-macvlan-address": "67-macvlan"}
	for _, f := range files {
		root := t.TempDir()
		put := func(path, example string) {
			path = filepath.Join(root, path)
			testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			testkit.NoError(t, os.WriteFile(path, testkit.ReadFile(t, dir+example), 0o644))
		}
		name := filepath.Base(f)
		put("etc/systemd/network/"+name, name)
		if other := with[strings.TrimSuffix(name, ".ibnetwork")]; other != "" {
			put("etc/systemd/network/"+other+".ibnetwork", other+".ibnetwork")
		}
		put("etc/ibnetworkd/addresses", "addresses")
		var out bytes.Buffer
		code := run(t.Context(), []string{"--root", root, "--no-bus", "verify"}, strings.NewReader(""), &out, &out)
		if code != exitOK || !strings.Contains(out.String(), "no problem found") {
			t.Errorf("%s: exit status %d\n%s", name, code, out.String())
		}
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
