package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/dump"
	"ibnetworkd/sm/mad"
	"ibnetworkd/smctl/probe"
)

// parts cuts a dump before each line that begins with a word, and sorts the parts:
// opensm's switches come in the order of its maps.
func parts(text []byte, begin string) (out []string) {
	for line := range strings.Lines(string(text)) {
		switch {
		case line == "\n":
		case strings.HasPrefix(line, begin) || out == nil:
			out = append(out, line)
		default:
			out[len(out)-1] += line
		}
	}
	slices.Sort(out)
	return out
}

// What is read from the switches and written is what opensm dumps of them.
func TestDumps(t *testing.T) {
	tl := rigTools(t, "opensm")
	for _, engine := range []string{"minhop", "ftree"} {
		t.Run(engine, func(t *testing.T) {
			r, sim := inProcess(t, tl, func() *simfabric.Sim { return simfabric.New(gen.FatTree2(8, 4), simfabric.Options{}) })
			m, err := r.run("opensm", "H-00001", 5, true, "-D", "0x43", "-R", engine)
			testkit.NoError(t, err)
			if _, err := m.waitUp(1, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			until(t, "all ports are Active", 10*time.Second, func() bool { return followed(sim) != 0 })
			time.Sleep(300 * time.Millisecond)
			for i, host := range []string{"H-00002", "H-00003", "H-00007", "H-00012"} {
				g := ib.MakeGID(0xff12401bffff0000, ib.GUID(0x100+i/3))
				if st := newSubscriber(t, sim, host).join(g, mad.MethodSet); st != 0 {
					t.Fatalf("%s does not join: status 0x%04x", host, uint16(st))
				}
			}
			dir := filepath.Dir(m.log)
			groups := func() bool {
				b, _ := os.ReadFile(filepath.Join(dir, "opensm.mcfdbs"))
				return strings.Count(string(b), "Switch ") >= 3
			}
			time.Sleep(300 * time.Millisecond)
			n := m.ups()
			m.signal(syscall.SIGHUP)
			if _, err := m.waitUp(n+1, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			until(t, "opensm dumps the groups", 10*time.Second, groups)

			conn, err := sim.OpenClient(sim.FindHost("H-00004")[0].PortGUID, false)
			testkit.NoError(t, err)
			defer conn.Close()
			tables, warnings, err := probe.Tables(t.Context(), conn)
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			mft, silent, err := probe.Multicast(t.Context(), conn, tables.Fabric)
			if err != nil || len(silent) > 0 {
				t.Fatal(err, silent)
			}
			f := tables.Fabric
			for _, tt := range []struct {
				file, begin string
				write       func(io.Writer) error
			}{
				{"opensm-lfts.dump", "Unicast lids", func(w io.Writer) error { return dump.LFTs(w, f, tables.LFT) }},
				{"opensm.fdbs", "dump_ucast_routes", func(w io.Writer) error { return dump.FDBs(w, f, tables.LFT) }},
				{"opensm.mcfdbs", "Switch ", func(w io.Writer) error { return dump.MFTs(w, f, mft) }},
				{"guid2lid", "0x", func(w io.Writer) error { return dump.GUID2LID(w, f) }},
			} {
				var b bytes.Buffer
				testkit.NoError(t, tt.write(&b))
				// opensm may be writing the file.
				x, y := parts(b.Bytes(), tt.begin), []string(nil)
				for end := time.Now().Add(10 * time.Second); !slices.Equal(x, y) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					want := testkit.ReadFile(t, filepath.Join(dir, tt.file))
					y = parts(want, tt.begin)
				}
				if len(x) == 0 || !slices.Equal(x, y) {
					t.Errorf("%s:\n%s\nopensm's:\n%s", tt.file, strings.Join(x, ""), strings.Join(y, ""))
				}
			}
		})
	}
}
