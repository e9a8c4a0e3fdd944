package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ibnetworkd/cmd/ibnetctl/answer/answertest"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/serve"
	"ibnetworkd/sm/transport"
)

// simHost has one port of a simulated subnet.
type simHost struct{ sim *simfabric.Sim }

func (h simHost) Ports() ([]serve.Port, error) {
	return []serve.Port{{Device: "sim0", Num: 1, GUID: gen.HostGUID + 1}}, nil
}
func (h simHost) Open(p serve.Port) (transport.Transport, error) { return h.sim.Open(p.GUID) }

// The commands against a manager that runs, through its socket.
func TestDrainScreens(t *testing.T) {
	sim := simfabric.New(gen.FatTree2(8, 4), simfabric.Options{})
	defer sim.Close()
	m := &serve.Manager{Host: simHost{sim}, Log: slog.New(slog.DiscardHandler),
		Config: func(serve.Port) engine.Config { return engine.Config{} }}
	sock := filepath.Join(t.TempDir(), "sm.sock")
	l, err := serve.Listen(sock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	wg.Go(func() { m.Serve(ctx, l) })
	defer wg.Wait()
	defer cancel()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, out, _ := ctl(t, 80, "sm", "drain", "--socket", sock); strings.Contains(out, "Master") {
			break
		} else if time.Since(begin) > 20*time.Second {
			t.Fatalf("no master: %s", out)
		}
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"drain S-0003", 0, "S-0003 (0x"},
		{"drain S-0001", 0, "ports on it, which lose the subnet with it: H-0000"},
		{"drain H-00001", exitFailure, "is not a switch"},
		{"drain nonsense", exitFailure, `"nonsense" is not a name, GUID or LID`},
		{"drain", 0, "S-0003 (0x"},
		{"undrain S-0001", 0, "S-0003 (0x"},
		{"undrain all", 0, "nothing"},
	} {
		code, out, e := ctl(t, 100, append(append([]string{"sm"}, strings.Fields(tt.args)...), "--socket", sock)...)
		if code != tt.code || !strings.Contains(strings.Join(strings.Fields(out), " "), tt.want) {
			t.Errorf("%s: exit status %d, %s\n%s", tt.args, code, e, out)
		}
		_, out, _ = ctl(t, 0, "--json", "sm", "drain", "--socket", sock)
		if err := answertest.Check("sm drain", []byte(out)); err != nil {
			t.Errorf("%s: %v\n%s", tt.args, err, out)
		}
	}
	if code, _, e := ctl(t, 80, "sm", "drain", "--socket", sock+"no"); code != exitFailure || !strings.Contains(e, "no ibnetsm answers") {
		t.Errorf("without a manager: exit status %d, %s", code, e)
	}
	if code, _, _ := ctl(t, 80, "sm", "drain", "a\nresweep", "--socket", sock); code != exitUsage {
		t.Errorf("two lines: exit status %d", code)
	}
}
