package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
)

// capture prints MADs that programs of others encoded (the reference simulator
// the SMPs, opensm the SA's answers), each with what infiniband-diags read from
// the same attribute at the same time: the golden file of package mad.
func capture(t *tools) error {
	r, err := t.start("ibsim", conformanceFabric)
	if err != nil {
		return err
	}
	defer r.stop()
	m, err := r.run("opensm", "H-00001", 5, false)
	if err != nil {
		return err
	}
	if _, err := m.waitUp(1, 30*time.Second); err != nil {
		return err
	}
	time.Sleep(time.Second)
	c, err := ibsim.Open(ibsim.Options{Sock: r.sock, Host: "H-00005"})
	if err != nil {
		return err
	}
	defer c.Close()
	port, err := c.Port()
	if err != nil {
		return err
	}
	tool := func(command string) (string, error) {
		x := exec.Command("sh", "-c", command)
		x.Dir = r.dir
		if x.Env, err = r.env("H-00002", true); err != nil {
			return "", err
		}
		b, err := x.Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
		return string(b), nil
	}
	sw, err := tool("ibswitches")
	if err != nil {
		return err
	}
	lid := func(s string) (l ib.LID) {
		if m := anyLID.FindStringSubmatch(s); m != nil {
			fmt.Sscan(m[1], &l)
		}
		return l
	}
	swLID, smLID := lid(sw), port.SMLID
	smp := func(a mad.AttrID, mod uint32, to ib.LID) transport.Packet {
		p := transport.Packet{LID: to, Timeout: time.Second, Retries: 3}
		mad.PutLR(&p.MAD, mad.MethodGet, a, mod, 1, 0, nil)
		return p
	}
	sa := func(a mad.AttrID, mask mad.CompMask, rec interface{ Append([]byte) []byte }) transport.Packet {
		p := transport.Packet{LID: smLID, QPN: 1, Timeout: time.Second, Retries: 3}
		h := mad.NewSA(mad.MethodGet, a, 1, mask)
		if a != mad.AttrMCMemberRecord {
			h.SMKey = 1 // without it a group is one record, with it one for each member
		}
		b := h.Append(nil)
		if rec != nil {
			b = rec.Append(b)
		}
		p.SetMessage(b, false)
		return p
	}
	for _, x := range []struct {
		name, tool string
		p          transport.Packet
	}{
		{"NodeInfo", "smpquery nodeinfo %M", smp(mad.AttrNodeInfo, 0, smLID)},
		{"NodeInfo", "smpquery nodeinfo %W", smp(mad.AttrNodeInfo, 0, swLID)},
		{"NodeDescription", "smpquery nodedesc %W", smp(mad.AttrNodeDescription, 0, swLID)},
		{"PortInfo", "smpquery portinfo %M 1", smp(mad.AttrPortInfo, 1, smLID)},
		{"PortInfo", "smpquery portinfo %W 1", smp(mad.AttrPortInfo, 1, swLID)},
		{"SwitchInfo", "smpquery switchinfo %W", smp(mad.AttrSwitchInfo, 0, swLID)},
		{"GUIDInfo", "smpquery guidinfo %M", smp(mad.AttrGUIDInfo, 0, smLID)},
		{"PortCounters", "perfquery %W 1", func() transport.Packet {
			p := transport.Packet{LID: swLID, QPN: 1, Timeout: time.Second, Retries: 3}
			p.MAD = mad.Buf{0: 1, 1: uint8(mad.ClassPerf), 2: 1, 3: uint8(mad.MethodGet), 17: uint8(mad.AttrPortCounters), 65: 1}
			return p
		}()},
		{"SMInfo", "sminfo", smp(mad.AttrSMInfo, 0, smLID)},
		{"ClassPortInfo", "saquery -c", sa(mad.AttrClassPortInfo, 0, nil)},
		{"NodeRecord", "saquery NR %M", sa(mad.AttrNodeRecord, mad.CompNRLID, &mad.NodeRecord{LID: smLID})},
		{"PortInfoRecord", "saquery PIR %M", sa(mad.AttrPortInfoRecord, mad.CompPIRLID, &mad.PortInfoRecord{LID: smLID})},
		{"PathRecord", "saquery PR --slid %S --dlid %M",
			sa(mad.AttrPathRecord, mad.CompPRSLID|mad.CompPRDLID, &mad.PathRecord{SLID: port.LID, DLID: smLID})},
		{"MCMemberRecord", "saquery -g", sa(mad.AttrMCMemberRecord, mad.CompMCMLID, &mad.MCMemberRecord{MLID: 0xc000})},
		{"SwitchInfoRecord", "saquery SWIR %W", sa(mad.AttrSwitchInfoRecord, mad.CompSWIRLID, &mad.SwitchInfoRecord{LID: swLID})},
		{"LinkRecord", "saquery LR %M", sa(mad.AttrLinkRecord, mad.CompLRFromLID, &mad.LinkRecord{FromLID: smLID})},
		{"GUIDInfoRecord", "saquery GIR %M", sa(mad.AttrGUIDInfoRecord, mad.CompGIRLID|mad.CompGIRBlock, &mad.GUIDInfoRecord{LID: smLID})},
		{"SMInfoRecord", "saquery SMIR", sa(mad.AttrSMInfoRecord, 0, nil)},
		{"SLtoVLRecord", "saquery SL2VL %M", sa(mad.AttrSLtoVLRecord, mad.CompSLVLLID, &mad.SLtoVLRecord{LID: smLID})},
		{"VLArbRecord", "saquery VLAR %M", sa(mad.AttrVLArbRecord, mad.CompVLARLID|mad.CompVLARBlock, &mad.VLArbRecord{LID: smLID, Block: 1})},
		{"LFTRecord", "saquery LFTR %W", sa(mad.AttrLFTRecord, mad.CompLFTLID|mad.CompLFTBlock, &mad.LFTRecord{LID: swLID})},
		{"PKeyTableRecord", "saquery --smkey 1 PKTR %M",
			sa(mad.AttrPKeyTableRecord, mad.CompPKTRLID|mad.CompPKTRBlock, &mad.PKeyTableRecord{LID: smLID})},
	} {
		if err := c.Send(&x.p); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var in [1]transport.Packet
		_, err := c.Recv(ctx, in[:])
		cancel()
		if err == nil {
			err = in[0].Err
		}
		if err == nil && mad.StatusOf(&in[0].MAD) != 0 {
			err = fmt.Errorf("status 0x%x", uint16(mad.StatusOf(&in[0].MAD)))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		text, err := tool(strings.NewReplacer("%M", fmt.Sprint(int(smLID)), "%W", fmt.Sprint(int(swLID)), "%S",
			fmt.Sprint(int(port.LID))).Replace(x.tool))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "== %s\n%s\n%s\n", x.name, hex.EncodeToString(in[0].MAD[:]), strings.TrimRight(text, "\n"))
	}
	return nil
}
