package engine

import (
	"context"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

// A port that requires an M_Key and gets a wrong one counts down its lease until an
// SMP with the right key comes, and gives up its protection when none does (IBA vol
// 1, 14.2.4.2). It reports that by trap 256, whose repress is such an SMP; but not
// every port sends traps, and a trap may be lost. Each light sweep sends SMPs to the
// switches, but none to adapters: so each end port is read several times within a
// lease. A port whose protection is gone all the same, or that lost its key, is set
// again.

// renewals is how often an end port is read within its lease.
const renewals = 3

// keyPeriod is the time between two reads of the M_Keys, 0 where no lease can run
// out.
func (s *Subnet) keyPeriod() time.Duration {
	if p := &s.cfg.Policy; p.MKey != 0 && p.Protect != 0 && p.MKeyLease != 0 {
		return time.Duration(p.MKeyLease) * time.Second / renewals
	}
	return 0
}

// renewKeys reads every end port with the M_Key and checks whether the port is still
// protected by it.
func (s *Subnet) renewKeys(ctx context.Context) error {
	f, pol := s.prog.fabric, &s.cfg.Policy
	seen := make(map[ib.GUID]uint16, len(s.prog.violations))
	l := &smp.List{Done: func(r *smp.Reply) {
		p := &f.Ports[r.Tag]
		if !r.OK() {
			return // its switch reports when it is gone
		}
		pi := mad.PortInfoOf(&r.Data)
		if n := pi.MKeyViolations(); n > 0 {
			seen[p.GUID] = n
			if n > s.prog.violations[p.GUID] {
				s.warnOnce("mkeys"+p.GUID.String(), "requests with a wrong M_Key reached a port", "link_port", f.PortName(int32(r.Tag)),
					"guid", p.GUID.String(), "so_far", n)
			}
		}
		if s.prog.have.declined[r.Tag] != 0 {
			return // it declined what was set
		}
		if pi.MKey() != pol.MKey || pi.MKeyProtect() != pol.Protect || pi.MKeyLease() != pol.MKeyLease {
			s.warnOnce("lease"+p.GUID.String(), "port lost its M_Key protection, setting it again", "link_port", f.PortName(int32(r.Tag)),
				"guid", p.GUID.String(), "protection", pi.MKeyProtect())
			s.ev.ports, s.ev.reason = append(s.ev.ports, p.LID), "a port's M_Key"
		}
	}}
	for _, e := range f.EndPorts {
		path, ok := program.PathTo(f, e)
		if !ok || f.Ports[e].LID == 0 {
			continue
		}
		r := smp.Request{Method: mad.MethodGet, Attr: mad.AttrPortInfo, Mod: uint32(f.Ports[e].Num), Path: path, Tag: uint64(e)}
		if !f.Nodes[f.Ports[e].Node].NoExtendedSpeeds {
			r.Mod |= smp.ExtendedSpeeds
		}
		l.Requests = append(l.Requests, r)
	}
	err := s.pump(ctx, l)
	if err == nil {
		s.prog.violations = seen
	}
	return err
}
