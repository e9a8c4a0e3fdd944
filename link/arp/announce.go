package arp

import (
	"net/netip"
	"time"
)

// Announcer announces an address that a link has: hosts that know it with another
// hardware address correct their entries (RFC 5227, section 2.3; the
// kernel's arp_process). The caller calls Tick at Deadline; now is as of Prober.
type Announcer struct {
	cfg   Config
	about netip.Addr
	left  int // announcements still to send
	due   time.Duration
}

// NewAnnouncer makes an announcer of an address; known says that other hosts know it.
func NewAnnouncer(cfg Config, about netip.Addr, known bool) *Announcer {
	a := &Announcer{cfg: cfg, about: about, left: AnnounceNum}
	if known {
		a.left = 0
	}
	return a
}

// Deadline is when Tick is to be called, 0 for never.
func (a *Announcer) Deadline() time.Duration { return a.due }

// Link takes whether the link has a carrier: without, an announcement is lost.
func (a *Announcer) Link(now time.Duration, carrier bool) {
	switch {
	case !carrier:
		a.due = 0
	case a.left > 0 && a.due == 0:
		a.due = now
	}
}

// Tick gives the packets to broadcast.
func (a *Announcer) Tick(now time.Duration) [][]byte {
	if a.due == 0 || now < a.due {
		return nil
	}
	a.left--
	a.due = 0
	if a.left > 0 {
		a.due = now + AnnounceInterval
	}
	return a.cfg.announcement(a.about)
}

// announcement returns the frames that announce the address of the link.
func (c Config) announcement(about netip.Addr) [][]byte { return c.request(about, about) }

func (c Config) request(from, about netip.Addr) [][]byte {
	return [][]byte{Packet{Op: Request, From: c.HWAddr, Sender: from, Target: about}.Encode(c.HType)}
}
