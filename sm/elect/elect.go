// Package elect is the SMInfo state machine: which manager is master, which polls,
// which hands over (IBA vol 1, 14.4).
//
// It has the state of this manager and the rules. It does no I/O and reads no
// clock: the engine reports discovered managers, SMInfo messages and the outcome
// of polls, and carries out the returned Action.
//
// Two rules go beyond the specification. A port that answers SMInfo with status
// 0x000c has a live host and no manager process; a second such answer proves it,
// without waiting for time-outs. And a master that a better manager wants to
// replace goes on serving until that one has acknowledged the handover.
package elect

import (
	"maps"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// Action is what the engine is to do next.
type Action uint8

// The actions.
const (
	Nothing     Action = iota
	Discover           // walk the subnet, then call Discovered
	Serve              // become master: configure and serve
	Poll               // be standby: poll Master, call Polled with the outcome
	Handover           // send Set(SMInfo) Handover to Target and go on serving until it acknowledges
	Acknowledge        // send Set(SMInfo) Acknowledge to the sender, then Serve
	StepDown           // handed over: stop serving, then poll
	Rest               // disabled by another manager
)

// Peer is another manager as discovery or a message saw it.
type Peer struct {
	Info mad.SMInfo
	LID  ib.LID
	Path []uint8
}

// Standing of the peer.
func (p *Peer) Standing() smp.Standing {
	return smp.Standing{Priority: p.Info.Priority, GUID: p.Info.GUID}
}

// Config is what the manager brings along.
type Config struct {
	Self  smp.Standing
	Trust Trust
	// Misses is the number of polls in a row that must fail before the master
	// is taken for gone; each has had its time-outs and retries.
	Misses int
}

// Machine is the state of this manager.
type Machine struct {
	cfg    Config
	state  mad.SMState
	master Peer // polled while standby
	target Peer // handed over to
	missed int
	dead   int
	peers  []Peer
	// leaving is set by Leave and never cleared.
	leaving bool
	// ignored are the ports of managers that only say that they are master. A
	// manager that is trusted is not ignored.
	ignored map[ib.GUID]bool
	// distrusted are the ports of managers that refused a handover or proved to have
	// another key, though what they show is trusted.
	distrusted map[ib.GUID]distrust
}

// distrust is why a manager is not trusted, and what it showed then.
type distrust struct {
	why  string
	info mad.SMInfo
}

// The reasons of Distrust.
const (
	HidesKey = "has a secret SM_Key of its own"
	Refused  = "refused the subnet"
)

// New starts in the state Discovering.
func New(cfg Config) *Machine {
	cfg.Misses = max(cfg.Misses, 1)
	return &Machine{cfg: cfg, state: mad.SMDiscovering}
}

// State is the state as in SMInfo.
func (m *Machine) State() mad.SMState { return m.state }

// SetGUID corrects this manager's port GUID before it has decided anything.
func (m *Machine) SetGUID(g ib.GUID) { m.cfg.Self.GUID = g }

// SetPriority changes this manager's priority: what follows is for the next discovery or
// poll to decide.
func (m *Machine) SetPriority(p uint8) { m.cfg.Self.Priority = p }

// Master is the manager that is polled while standby.
func (m *Machine) Master() Peer { return m.master }

// Target is the manager that is being handed over to.
func (m *Machine) Target() Peer { return m.target }

// Peers are the other managers that the last discovery saw, best first.
func (m *Machine) Peers() []Peer { return m.peers }

// Trust is what decides who is trusted.
func (m *Machine) Trust() Trust { return m.cfg.Trust }

// Trusts reports whether a manager is trusted: see Problem.
func (m *Machine) Trusts(i mad.SMInfo) bool { return m.Problem(i) == "" }

// Problem returns why a manager is not trusted, by Trust or since Distrust, "" if it is.
func (m *Machine) Problem(i mad.SMInfo) string {
	if why := m.cfg.Trust.Problem(i); why != "" {
		return why
	}
	d, ok := m.distrusted[i.GUID]
	switch {
	case !ok:
		return ""
	case i.SMKey != d.info.SMKey, i.Priority != d.info.Priority, i.ActCount < d.info.ActCount:
		delete(m.distrusted, i.GUID)
		return ""
	}
	return d.why
}

// Distrust takes a manager that answered so for untrusted until it shows another key
// or priority, or was restarted.
func (m *Machine) Distrust(i mad.SMInfo, why string) {
	if m.distrusted == nil || len(m.distrusted) > 1024 {
		m.distrusted = map[ib.GUID]distrust{}
	}
	m.distrusted[i.GUID] = distrust{why, i}
}

// Forgive ends that for a manager, if it was for this reason.
func (m *Machine) Forgive(g ib.GUID, why string) {
	if m.distrusted[g].why == why {
		delete(m.distrusted, g)
	}
}

// better reports whether the peer outranks this manager.
func (m *Machine) better(p *Peer) bool { return p.Standing().Better(m.cfg.Self) }

// Discovered reports the managers that a walk met and decides what follows.
func (m *Machine) Discovered(peers []Peer) Action {
	m.peers = slices.Clone(peers)
	slices.SortFunc(m.peers, func(a, b Peer) int {
		switch {
		case a.Standing().Better(b.Standing()):
			return -1
		case b.Standing().Better(a.Standing()):
			return 1
		}
		return 0
	})
	switch m.state {
	case mad.SMDiscovering:
		// A master of any standing is not contested: it will discover a better one and
		// hand over. Nor is a better one that has yet to decide, if it is trusted: one
		// that is not may never do.
		for _, want := range []mad.SMState{mad.SMMaster, mad.SMStandby, mad.SMDiscovering} {
			for i := range m.peers {
				p := &m.peers[i]
				if p.Info.State == want && (want == mad.SMMaster && (!m.ignored[p.Info.GUID] || m.Trusts(p.Info)) || m.better(p) &&
					want != mad.SMMaster && m.Trusts(p.Info)) {
					return m.standby(*p)
				}
			}
		}
		m.state = mad.SMMaster
		return Serve
	case mad.SMMaster:
		for i := range m.peers {
			p := &m.peers[i]
			if m.better(p) && m.Trusts(p.Info) && (p.Info.State == mad.SMStandby || p.Info.State == mad.SMMaster) {
				m.target = *p
				return Handover
			}
		}
	}
	return Nothing
}

func (m *Machine) standby(p Peer) Action {
	// Only a master has a subnet that others refuse.
	maps.DeleteFunc(m.distrusted, func(_ ib.GUID, d distrust) bool { return d.why == Refused })
	m.state, m.master, m.missed, m.dead = mad.SMStandby, p, 0, 0
	return Poll
}

// Polled reports the outcome of a poll of the master: its SMInfo, or no answer
// in time, or status 0x000c (dead).
func (m *Machine) Polled(info *mad.SMInfo, dead bool) Action {
	if m.state != mad.SMStandby {
		return Nothing
	}
	switch {
	case dead:
		if m.dead++; m.dead < 2 {
			return Poll
		}
	case info == nil:
		if m.missed++; m.missed < m.cfg.Misses {
			return Poll
		}
	default:
		m.missed, m.dead = 0, 0
		m.master.Info = *info
		switch info.State {
		case mad.SMMaster:
			return Nothing
		case mad.SMStandby, mad.SMDiscovering:
			// Not master any more, or not yet. If it outranks this manager it becomes
			// master; if not, this one has to.
			if m.better(&m.master) && info.State == mad.SMDiscovering && m.Trusts(*info) {
				return Nothing
			}
		}
	}
	m.state = mad.SMDiscovering
	return Discover
}

// Received handles a Set of SMInfo from another manager. Nothing comes of one
// that is not trusted, or whose state does not entitle it to what it asks for.
func (m *Machine) Received(mod uint32, p Peer) Action {
	if from := p.Info.State; from != mad.SMMaster && (mod != mad.SMInfoAcknowledge || from != mad.SMStandby) {
		return Nothing // only a master gives orders (IBA vol 1, 14.4.1)
	}
	// One that accepted a handover, but whose answers were lost, is master now.
	if m.Forgive(p.Info.GUID, Refused); !m.Trusts(p.Info) {
		return Nothing
	}
	switch mod {
	case mad.SMInfoHandover:
		if m.state == mad.SMNotActive {
			return Nothing
		}
		m.state = mad.SMMaster
		return Acknowledge
	case mad.SMInfoAcknowledge:
		if m.state == mad.SMMaster && p.Info.GUID == m.target.Info.GUID && m.target.Info.GUID != 0 {
			m.target = Peer{}
			if m.standby(p); m.leaving {
				m.Retire()
			}
			return StepDown
		}
	case mad.SMInfoDisable:
		if m.state == mad.SMStandby {
			m.state = mad.SMNotActive
			return Rest
		}
	case mad.SMInfoStandby:
		if m.state == mad.SMNotActive {
			return m.standby(p)
		}
	case mad.SMInfoDiscover:
		if m.state == mad.SMStandby {
			m.state = mad.SMDiscovering
			return Discover
		}
	}
	return Nothing
}

// Saw takes over what a manager says of itself now, one that is not known yet
// included.
func (m *Machine) Saw(p Peer) {
	for k := range m.peers {
		if m.peers[k].Info.GUID == p.Info.GUID {
			m.peers[k].Info = p.Info
			return
		}
	}
	m.peers = append(m.peers, p)
}

// IsNotActive reports whether a known manager is in the state NotActive.
func (m *Machine) IsNotActive(g ib.GUID) bool {
	return slices.ContainsFunc(m.peers, func(p Peer) bool { return p.Info.GUID == g && p.Info.State == mad.SMNotActive })
}

// Lost notes that the peer of that number in Peers no longer answers SMInfo as a
// manager.
func (m *Machine) Lost(k int) {
	if k < len(m.peers) {
		m.peers[k].Info.State = mad.SMNotActive
	}
}

// Restart goes back to Discovering: the link was down, the port lost its LID.
func (m *Machine) Restart() {
	m.state, m.target = mad.SMDiscovering, Peer{}
}

// Ignore leaves the manager of a port out of account while it is not trusted, and
// starts over.
func (m *Machine) Ignore(g ib.GUID) {
	if m.ignored == nil || len(m.ignored) > 1024 {
		m.ignored = map[ib.GUID]bool{}
	}
	m.ignored[g] = true
	m.Restart()
}

// Retire is the end of a manager that stays to answer for a while: as NotActive it
// is handed no subnet, whatever its rank.
func (m *Machine) Retire() { m.state = mad.SMNotActive }

// Leave begins the end of this manager. It returns the one to hand over to, the best standby.
// Once that has accepted, this manager is NotActive, whatever the new master orders.
func (m *Machine) Leave() (Peer, bool) {
	if m.state != mad.SMMaster {
		return Peer{}, false
	}
	for _, p := range m.peers {
		if p.Info.State == mad.SMStandby && m.Trusts(p.Info) {
			m.target, m.leaving = p, true
			return p, true
		}
	}
	return Peer{}, false
}

// Info is the SMInfo that this manager answers with.
func (m *Machine) Info(count uint32) mad.SMInfo {
	return mad.SMInfo{GUID: m.cfg.Self.GUID, SMKey: m.cfg.Trust.Key, ActCount: count, Priority: m.cfg.Self.Priority, State: m.state}
}
