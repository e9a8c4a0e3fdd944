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
		n      int
		want   string
	}{
		{`[{"port_guid":"0x0000000000000007","roots":["0x1","0x2"]}]`, 1, ""},
		{"unknown request \"routing\"\n", 0, "does not report how it routes"},
		{"[" + strings.Repeat("{},", MaxRouting/3) + "{}]", 0, "more than 25165824 bytes"},
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
		got, err := QueryRouting(context.Background(), path)
		l.Close()
		if len(got) != tt.n || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: %+v, %v", tt.answer, got, err)
		}
		if tt.n > 0 && (got[0].PortGUID != 7 || len(got[0].Roots) != 2) {
			t.Errorf("%+v", got[0])
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
