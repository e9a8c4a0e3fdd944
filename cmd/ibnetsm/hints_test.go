package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

// Hints are applied by a reload, without a restart; a line with a mistake is left out. A
// file that cannot be read leaves those in use, and a start without its hints alone.
func TestHints(t *testing.T) {
	dir := t.TempDir()
	roots, hops, prefixes := filepath.Join(dir, "roots"), filepath.Join(dir, "hops"), filepath.Join(dir, "prefixes")
	write := func(file, text string) {
		t.Helper()
		testkit.WriteFile(t, file, text)
	}
	write(roots, "0x1\n")
	write(hops, "0x1 2 3\n")
	write(prefixes, "")
	var o options
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.bind(f)
	testkit.NoError(t, f.Parse([]string{"--transport=ibsim", "--root-guid-file=" + roots, "--hop-weights-file=" + hops,
		"--prefix-routes-file=" + prefixes}))
	start := func() (*daemon, *bytes.Buffer) {
		log := new(bytes.Buffer)
		d := &daemon{opts: &o, begun: &o, log: textLog(log), level: new(slog.LevelVar), status: newNotifier()}
		testkit.NoError(t, d.configure(&o))
		return d, log
	}
	d, log := start()
	has := func(d *daemon, hops int, want ...ib.GUID) {
		t.Helper()
		if r := d.config.Load().Route; !slices.Equal(r.Roots, want) || len(r.HopWeights) != hops {
			t.Errorf("%+v, want roots %v and %d weights", r, want, hops)
		}
	}
	has(d, 1, 1)
	write(roots, "0x1\n0x2\n")
	write(prefixes, "* *\n")
	if err := d.reload(); err != nil {
		t.Error(err)
	}
	has(d, 1, 1, 2)
	if n := len(d.config.Load().PrefixRoutes); n != 1 {
		t.Errorf("%d prefix routes", n)
	}
	write(roots, "0x1\n  spine2\n")
	if err := d.reload(); err != nil {
		t.Error(err)
	}
	has(d, 1, 1)
	if want := roots + ":2:3: GUID"; !strings.Contains(log.String(), want) || d.status.note != "" {
		t.Errorf("no %s in the log, or the status %q:\n%s", want, d.status.note, log)
	}
	write(prefixes, "nonsense\n* *\n")
	testkit.NoError(t, os.Remove(roots))
	if err := d.reload(); err != nil || !strings.HasSuffix(d.status.note, ": the previous settings stay in force") {
		t.Errorf("%v, status %q", err, d.status.note)
	}
	has(d, 1, 1)
	d, _ = start()
	has(d, 1)
	if want := ": routes are computed without it"; !strings.HasSuffix(d.status.note, want) || len(d.config.Load().PrefixRoutes) != 1 {
		t.Errorf("status %q", d.status.note)
	}
}

// LIDs of opensm are read at the start; a file that cannot be used is reported then, and
// no obstacle later.
func TestLIDsOfOpenSM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guid2lid")
	o := optionsOf(t, "--transport=ibsim", "--guid2lid="+file)
	o.given = map[string][]string{}
	for text, want := range map[string]string{
		"0x1 0x1 0x1\n\n0x2 0x4 0x5\n\n":                "",
		"0x1 0x1 0x1\n\n0x2 0x1 0x1\n\n0x3 0x2 0x2\n\n": file + ":3:5: LID 1 belongs to the port of line 1 already",
	} {
		testkit.WriteFile(t, file, text)
		log := new(bytes.Buffer)
		d := &daemon{opts: &o, begun: &o, log: textLog(log), level: new(slog.LevelVar), status: newNotifier()}
		testkit.NoError(t, d.configure(&o))
		if n := len(d.config.Load().LIDs); d.status.note != "" || n != 2 || !strings.Contains(log.String(), want) {
			t.Errorf("%d LIDs, status %q, want %q in the log:\n%s", n, d.status.note, want, log)
		}
		testkit.NoError(t, os.Remove(file))
		if err := d.reload(); err != nil || d.status.note != "" {
			t.Errorf("reload without the file: %v, status %q", err, d.status.note)
		}
		if n := len(d.config.Load().LIDs); n != 2 {
			t.Errorf("%d LIDs for a port that appears after a reload", n)
		}
	}
}
