package control

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/guidfile"
)

// What is not the answer, or too long, is an error that names the socket.
func TestQueryRouting(t *testing.T) {
	for _, tt := range []struct {
		answer string
		found  bool
		want   string
	}{
		{`[{"port_guid":"0x0000000000000007","roots":["0x1","0x2"],"lmc":2}]`, true, ""},
		{`[{"port_guid":"0x0000000000000008"}]`, false, ""},
		{"[]", false, ""},
		{"unknown request \"routing 0x0000000000000007\"\n", false, ErrOld.Error()},
		{"<html>", false, "its answer cannot be read: invalid character"},
		{"[" + strings.Repeat("{},", MaxRouting/3) + "{}]", false, "more than 25165824 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "s.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, MaxAsk))
			_, _ = c.Write([]byte(tt.answer))
		}()
		got, err := QueryRouting(context.Background(), path, 7)
		l.Close()
		if (got != nil) != tt.found || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: %+v, %v", tt.answer, got, err)
		}
		if got != nil && (got.PortGUID != 7 || len(got.Roots) != 2 || got.LMC != 2) {
			t.Errorf("%+v", got)
		}
	}
}

// Whatever is read is written and read again as the same.
func FuzzRouting(f *testing.F) {
	b, err := json.Marshal([]Routing{{Device: "a", Port: 1, PortGUID: 7, State: "Master", Engine: "updn,ftree", QoS: true, Roots: []ib.GUID{1},
		HopWeights: []guidfile.Weight{{Switch: 3, Port: 4, Hops: 5}}, Order: []ib.GUID{9, 8}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("unknown request"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseRouting(b)
		if err != nil {
			return
		}
		c, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := ParseRouting(c)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := json.Marshal(y); err != nil || !bytes.Equal(c, d) || len(x) > len(b) {
			t.Errorf("%s, then %s, %v", c, d, err)
		}
	})
}
