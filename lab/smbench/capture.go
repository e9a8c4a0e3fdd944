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
	r, _, err := t.managed("ibsim", conformanceFabric, "opensm", 5, false)
	if err != nil {
		return err
	}
	defer r.stop()
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
	switches, err := tool("ibswitches")
	if err != nil {
		return err
	}
	l := lids{own: port.LID, sm: port.SMLID}
	if m := anyLID.FindStringSubmatch(switches); m != nil {
		fmt.Sscan(m[1], &l.sw)
	}
	words := strings.NewReplacer("%M", fmt.Sprint(int(l.sm)), "%W", fmt.Sprint(int(l.sw)), "%S", fmt.Sprint(int(l.own)))
	for _, q := range l.questions() {
		b, err := answer(c, &q.p)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		text, err := tool(words.Replace(q.tool))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "== %s\n%s\n%s\n", q.name, hex.EncodeToString(b), strings.TrimRight(text, "\n"))
	}
	return nil
}

// lids are those of this host, of the subnet manager's and of a switch.
type lids struct{ own, sm, sw ib.LID }

// question is a MAD, and the command of infiniband-diags that asks the same; %M, %W
// and %S are the LIDs of the manager, the switch and this host.
type question struct {
	name, tool string
	p          transport.Packet
}

func smp(a mad.AttrID, mod uint32, to ib.LID) transport.Packet {
	p := transport.Packet{LID: to, Timeout: time.Second, Retries: 3}
	mad.PutLR(&p.MAD, mad.MethodGet, a, mod, 1, 0, nil)
	return p
}

func (l lids) sa(a mad.AttrID, mask mad.CompMask, rec interface{ Append([]byte) []byte }) transport.Packet {
	p := transport.Packet{LID: l.sm, QPN: 1, Timeout: time.Second, Retries: 3}
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

func (l lids) questions() []question {
	counters := transport.Packet{LID: l.sw, QPN: 1, Timeout: time.Second, Retries: 3}
	h := mad.Header{BaseVersion: mad.BaseVer, Class: mad.ClassPerf, ClassVersion: mad.PerfClassV, Method: mad.MethodGet,
		Attr: mad.AttrPortCounters}
	h.Put(&counters.MAD)
	counters.MAD[mad.PerfDataOffset+1] = 1 // PortSelect
	return []question{
		{"NodeInfo", "smpquery nodeinfo %M", smp(mad.AttrNodeInfo, 0, l.sm)},
		{"NodeInfo", "smpquery nodeinfo %W", smp(mad.AttrNodeInfo, 0, l.sw)},
		{"NodeDescription", "smpquery nodedesc %W", smp(mad.AttrNodeDescription, 0, l.sw)},
		{"PortInfo", "smpquery portinfo %M 1", smp(mad.AttrPortInfo, 1, l.sm)},
		{"PortInfo", "smpquery portinfo %W 1", smp(mad.AttrPortInfo, 1, l.sw)},
		{"SwitchInfo", "smpquery switchinfo %W", smp(mad.AttrSwitchInfo, 0, l.sw)},
		{"GUIDInfo", "smpquery guidinfo %M", smp(mad.AttrGUIDInfo, 0, l.sm)},
		{"PortCounters", "perfquery %W 1", counters},
		{"SMInfo", "sminfo", smp(mad.AttrSMInfo, 0, l.sm)},
		{"ClassPortInfo", "saquery -c", l.sa(mad.AttrClassPortInfo, 0, nil)},
		{"NodeRecord", "saquery NR %M", l.sa(mad.AttrNodeRecord, mad.CompNRLID, &mad.NodeRecord{LID: l.sm})},
		{"PortInfoRecord", "saquery PIR %M", l.sa(mad.AttrPortInfoRecord, mad.CompPIRLID, &mad.PortInfoRecord{LID: l.sm})},
		{"PathRecord", "saquery PR --slid %S --dlid %M",
			l.sa(mad.AttrPathRecord, mad.CompPRSLID|mad.CompPRDLID, &mad.PathRecord{SLID: l.own, DLID: l.sm})},
		{"MCMemberRecord", "saquery -g", l.sa(mad.AttrMCMemberRecord, mad.CompMCMLID, &mad.MCMemberRecord{MLID: 0xc000})},
		{"SwitchInfoRecord", "saquery SWIR %W", l.sa(mad.AttrSwitchInfoRecord, mad.CompSWIRLID, &mad.SwitchInfoRecord{LID: l.sw})},
		{"LinkRecord", "saquery LR %M", l.sa(mad.AttrLinkRecord, mad.CompLRFromLID, &mad.LinkRecord{FromLID: l.sm})},
		{"GUIDInfoRecord", "saquery GIR %M", l.sa(mad.AttrGUIDInfoRecord, mad.CompGIRLID|mad.CompGIRBlock, &mad.GUIDInfoRecord{LID: l.sm})},
		{"SMInfoRecord", "saquery SMIR", l.sa(mad.AttrSMInfoRecord, 0, nil)},
		{"SLtoVLRecord", "saquery SL2VL %M", l.sa(mad.AttrSLtoVLRecord, mad.CompSLVLLID, &mad.SLtoVLRecord{LID: l.sm})},
		{"VLArbRecord", "saquery VLAR %M", l.sa(mad.AttrVLArbRecord, mad.CompVLARLID|mad.CompVLARBlock, &mad.VLArbRecord{LID: l.sm, Block: 1})},
		{"LFTRecord", "saquery LFTR %W", l.sa(mad.AttrLFTRecord, mad.CompLFTLID|mad.CompLFTBlock, &mad.LFTRecord{LID: l.sw})},
		{"PKeyTableRecord", "saquery --smkey 1 PKTR %M",
			l.sa(mad.AttrPKeyTableRecord, mad.CompPKTRLID|mad.CompPKTRBlock, &mad.PKeyTableRecord{LID: l.sm})},
	}
}

// answer sends a request and gives the bytes of its answer.
func answer(c *ibsim.Transport, p *transport.Packet) ([]byte, error) {
	if err := c.Send(p); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var in [1]transport.Packet
	if _, err := c.Recv(ctx, in[:]); err != nil {
		return nil, err
	}
	if in[0].Err != nil {
		return nil, in[0].Err
	}
	if s := mad.StatusOf(&in[0].MAD); s != 0 {
		return nil, fmt.Errorf("status 0x%x", uint16(s))
	}
	return in[0].MAD[:], nil
}
