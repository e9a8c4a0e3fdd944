package engine_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/picture"
)

// A node's description cannot send control sequences to the reader's terminal: it is
// sanitised in every output.
func TestHostileDescription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const evil = "\x1b[2J\x1b]0;owned\x07\u009b31m\u202e\xff\"\r\nfake line"
		f := gen.FatTree2(8, 4)
		hosts := hostsOf(f)
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		for i := range f.Nodes {
			testkit.NoError(t, w.sim.SetDescription(f.Nodes[i].GUID, evil))
		}
		log := new(testkit.Buffer)
		var tables []byte
		s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
		w.settle(f.SMPort, s, time.Second)
		_ = w.sim.Mute(f.Nodes[f.Ports[hosts[5]].Node].GUID, true) // something to warn of
		s.Resweep(true, "test")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		c := w.client(t, hosts[3])
		p, _ := c.tr.Port()
		_, rec, err := c.ask(mad.MethodGet, mad.AttrNodeRecord, 1, &mad.NodeRecord{LID: p.LID})
		testkit.NoError(t, err)
		var n mad.NodeRecord
		if n.Decode(rec) != nil {
			t.Fatal("no record")
		}
		tables = n.Description[:bytes.IndexByte(append(n.Description[:], 0), 0)]
		x := s.Refresh()
		var text, svg, metrics bytes.Buffer
		text.WriteString(gen.Text(x.Fabric))
		if err := picture.WriteSVG(&svg, x.Fabric); err != nil {
			t.Error(err)
		}
		var dot bytes.Buffer
		if err := picture.WriteDOT(&dot, x.Fabric); err != nil {
			t.Error(err)
		}
		x.WriteMetrics(&metrics)
		status, err := json.Marshal(x)
		if err != nil {
			t.Error(err)
		}
		for what, b := range map[string][]byte{"text": text.Bytes(), "SVG": svg.Bytes(), "DOT": dot.Bytes(), "metrics": metrics.Bytes(),
			"status": status, "log": []byte(log.String()), "SA": tables} {
			if len(b) == 0 {
				t.Errorf("%s is empty", what)
			}
			at := bytes.IndexFunc(b, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) || r == '\u202e' })
			if !utf8.Valid(b) || at >= 0 || bytes.Contains(b, []byte("\nfake line")) {
				t.Errorf("%s has what a node wrote, at %d: %q", what, at, b[max(0, at-20):min(len(b), at+40)])
			}
		}
		if !strings.Contains(text.String(), "fake line") || !strings.Contains(log.String(), "fake line") {
			t.Error("the description is not shown at all")
		}
	})
}
