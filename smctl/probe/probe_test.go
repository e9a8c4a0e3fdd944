package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// answerSMInfo is a subnet manager that only says who it is.
func answerSMInfo(ctx context.Context, t *testing.T, tr transport.Transport, guid ib.GUID, prio uint8, state smctl.SMState) {
	if err := tr.SetIsSM(true); err != nil {
		t.Error(err)
	}
	go func() {
		into := make([]transport.Packet, 8)
		for {
			n, err := tr.Recv(ctx, into)
			if err != nil {
				return
			}
			for i := range into[:n] {
				p := into[i]
				if mad.AttrOf(&p.MAD) != mad.AttrSMInfo || mad.MethodOf(&p.MAD) != mad.MethodGet {
					continue
				}
				var smp mad.SMP
				smp.Decode(&p.MAD)
				info := mad.SMInfo{GUID: guid, Priority: prio, State: mad.SMState(state)}
				clear(smp.Data[:])
				info.Append(smp.Data[:0])
				smp.Method = mad.MethodGetResp
				if smp.Class == mad.ClassSubnDR {
					smp.Status |= 0x8000
				}
				smp.Put(&p.MAD)
				p.Timeout = 0
				_ = tr.Send(&p)
			}
		}
	}()
}

func hostsOf(f *fabric.Fabric) (hosts []ib.GUID) {
	for _, p := range f.EndPorts {
		if f.Nodes[f.Ports[p].Node].Type == ib.NodeCA {
			hosts = append(hosts, f.Ports[p].GUID)
		}
	}
	return hosts
}

func TestWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(4, 4)
		s := simfabric.New(f, simfabric.Options{Seed: 1, DelayMin: time.Microsecond, DelayMax: 20 * time.Microsecond})
		hosts := hostsOf(f)
		me, err := s.Open(hosts[0])
		testkit.NoError(t, err)
		defer me.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		start := time.Now()
		sms, err := Walk(ctx, me)
		if err != nil || len(sms) != 0 {
			t.Fatalf("an empty fabric has %v, %v", sms, err)
		}
		t.Logf("walk of %d ports took %v of virtual time", len(f.Ports), time.Since(start))

		other, err := s.Open(hosts[3])
		testkit.NoError(t, err)
		defer other.Close()
		answerSMInfo(ctx, t, other, hosts[3], 7, smctl.SMMaster)
		third, err := s.Open(hosts[5])
		testkit.NoError(t, err)
		defer third.Close()
		answerSMInfo(ctx, t, third, hosts[5], 9, smctl.SMStandby)
		sms, err = Walk(ctx, me)
		testkit.NoError(t, err)
		if len(sms) != 2 || sms[0].GUID != hosts[5] || sms[0].State != smctl.SMStandby || sms[1].GUID != hosts[3] ||
			sms[1].Priority != 7 || sms[1].State != smctl.SMMaster {
			t.Errorf("found %v", sms)
		}

		// One that says it is there and is mute.
		fourth, err := s.Open(hosts[6])
		testkit.NoError(t, err)
		defer fourth.Close()
		testkit.NoError(t, fourth.SetIsSM(true))
		if sms, err = Walk(ctx, me); err != nil || len(sms) < 2 {
			t.Errorf("with a mute one: %v, %v", sms, err)
		}
		topo, err := Topology(ctx, me, false)
		if err != nil || len(topo.Fabric.Nodes) != len(f.Nodes) || topo.Why != "no subnet manager has configured the port" {
			t.Errorf("the topology has %+v, %v", topo, err)
		}
	})
}

// unreported is a port as the kernel has it: of what the adapter does not answer to its
// own host nothing comes back.
type unreported struct{ transport.Transport }

func (u unreported) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	for {
		n, err := u.Transport.Recv(ctx, into)
		n = len(slices.DeleteFunc(into[:n], func(p transport.Packet) bool { return p.Err != nil && p.MAD[7] == 0 }))
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func TestWalkOwnPortSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(4, 4)
		s := simfabric.New(f, simfabric.Options{Seed: 1})
		e := f.EndPorts[len(f.EndPorts)-1]
		me, err := s.Open(f.Ports[e].GUID)
		testkit.NoError(t, err)
		defer me.Close()
		testkit.NoError(t, s.Mute(f.Nodes[f.Ports[e].Node].GUID, true))
		start := time.Now()
		if _, err := Walk(t.Context(), unreported{me}); err != errSilent {
			t.Errorf("a walk from a port that does not answer: %v", err)
		}
		if d := time.Since(start); d != 2*answerLimit {
			t.Errorf("it took %v", d)
		}
	})
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/class/infiniband_mad")
	for name, v := range map[string][2]string{"umad0": {"mlx5_0\n", "1\n"}, "umad1": {"mlx5_1\n", "1\n"},
		"umad2": {"mlx5_1\n", "2\n"}, "issm0": {"mlx5_0\n", "1\n"}} {
		testkit.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		for i, f := range []string{"ibdev", "port"} {
			testkit.WriteFile(t, filepath.Join(dir, name, f), v[i])
		}
	}
	sys := sysfs.New(root)
	if u, err := find(sys, "mlx5_1", 2); err != nil || u.Name != "umad2" || u.ISSM != "" {
		t.Errorf("found %+v, %v", u, err)
	}
	if u, err := find(sys, "mlx5_0", 1); err != nil || u.ISSM != "issm0" {
		t.Errorf("found %+v, %v", u, err)
	}
	if _, err := find(sys, "mlx5_2", 1); err == nil {
		t.Error("a port without a device was found")
	}
	if _, err := find(sysfs.New(filepath.Join(root, "nope")), "mlx5_0", 1); err != ErrNoUmad {
		t.Errorf("without the class: %v", err)
	}
	// An issm device that cannot be read is not one that is missing.
	testkit.NoError(t, os.Remove(filepath.Join(dir, "issm0/ibdev")))
	testkit.NoError(t, os.Mkdir(filepath.Join(dir, "issm0/ibdev"), 0o755))
	if u, err := find(sys, "mlx5_0", 1); err == nil || errors.Is(err, transport.ErrNoQP0) {
		t.Errorf("with an issm device that cannot be read: %+v, %v", u, err)
	}
}

// A port that an M_Key protects from its own host is no empty fabric.
func TestWalkFromProtectedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree2(4, 4)
		s := simfabric.New(f, simfabric.Options{Seed: 1, DelayMin: time.Microsecond, DelayMax: 20 * time.Microsecond})
		hosts := hostsOf(f)
		me, err := s.Open(hosts[0])
		testkit.NoError(t, err)
		defer me.Close()
		var p transport.Packet
		var info mad.PortInfo
		info.SetMKey(0x77)
		info.SetMKeyProtect(2)
		p = transport.Packet{LID: ib.LIDPermissive, Timeout: timeout}
		mad.PutDR(&p.MAD, mad.MethodSet, mad.AttrPortInfo, 0, 1, 0, nil, info.Append(nil))
		testkit.NoError(t, me.Send(&p))
		into := make([]transport.Packet, 4)
		if _, err := me.Recv(t.Context(), into); err != nil {
			t.Fatal(err)
		}
		if sms, err := Walk(t.Context(), me); err == nil {
			t.Errorf("it says that there are %v", sms)
		} else {
			t.Log(err)
		}
	})
}
