package ibsim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/transporttest"
)

const topo = `Switch 36 "S-1" # "S-1"
[1] "H-1"[1] # "H-1" lid 0 4xEDR
[2] "H-2"[1] # "H-2" lid 0 4xEDR

Hca 1 "H-1" # "H-1"
[1] "S-1"[1] # lid 0 lmc 0 "S-1" lid 0 4xEDR

Hca 1 "H-2" # "H-2"
[1] "S-1"[2] # lid 0 lmc 0 "S-1" lid 0 4xEDR
`

// start runs the reference simulator on a private name.
func start(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("ibsim")
	if err != nil {
		t.Skip("ibsim is not installed (package ibsim-utils)")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "topo")
	testkit.WriteFile(t, file, topo)
	sock := fmt.Sprintf("t%d%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", ""))
	c := exec.Command(bin, "-s", "-n", file)
	c.Dir = dir
	c.Env = append(os.Environ(), "IBSIM_SOCKNAME="+sock)
	var out bytes.Buffer
	c.Stderr = &out
	testkit.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("ibsim: %s", out.String())
		}
	})
	return sock
}

func TestTransport(t *testing.T) {
	sock := start(t)
	at := func(host string) func(*testing.T) transport.Transport {
		return func(t *testing.T) transport.Transport {
			tr, err := Open(Options{Sock: sock, Host: host, Wait: 5 * time.Second})
			testkit.NoError(t, err)
			return tr
		}
	}
	transporttest.Run(t, transporttest.Config{
		Open: at("H-1"), Peer: at("H-2"), Path: []uint8{1}, NoPath: []uint8{1, 30}, PeerPath: []uint8{1, 2}, Flood: 5000, SilentOnUnknown: true,
	})
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(Options{Sock: "nobody-listens-here", Wait: time.Millisecond}); err == nil ||
		!strings.Contains(err.Error(), "IBSIM_SOCKNAME") {
		t.Errorf("no simulator: %v", err)
	}
}

func TestWire(t *testing.T) {
	d := Data{DLID: 1, SLID: 2, DQP: 3, SQP: 4, Status: 5}
	d.MAD[0], d.MAD[255] = 6, 7
	var b [DataLen]byte
	d.Put(&b)
	if b[1] != 1 || b[5] != 2 || b[11] != 3 || b[15] != 4 || b[19] != 5 || b[30] != 1 || b[32] != 6 || b[287] != 7 {
		t.Errorf("%x", b)
	}
	var e Data
	if err := e.Decode(b[:]); err != nil || e != d {
		t.Errorf("%v %+v", err, e)
	}
	var c, c2 Ctl
	i := ClientInfo{ID: 1, QP: 2, IsSM: 3, Node: "H-1"}
	i.Put(&c)
	if err := c2.Decode(c.Append(nil)); err != nil || c2 != c {
		t.Errorf("%v %+v", err, c2)
	}
	var j ClientInfo
	if j.Get(&c2); j != i {
		t.Errorf("%+v", j)
	}
}

func FuzzDecode(f *testing.F) {
	var b [DataLen]byte
	d := Data{DLID: ib.LIDPermissive}
	d.Put(&b)
	f.Add(b[:])
	var c Ctl
	f.Add(c.Append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d Data
		if d.Decode(in) == nil {
			_ = d.packet()
			var out [DataLen]byte
			d.Put(&out)
			var again Data
			if err := again.Decode(out[:]); err != nil || again != d {
				t.Errorf("%+v became %+v, %v", d, again, err)
			}
		}
		var c Ctl
		if c.Decode(in) == nil {
			if out := c.Append(nil); !bytes.Equal(out, in) {
				t.Errorf("%x became %x", in, out)
			}
			var i ClientInfo
			if i.Get(&c); len(i.Node) > len(c.Data) {
				t.Errorf("node %q", i.Node)
			}
		}
	})
}
