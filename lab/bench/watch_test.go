package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A wish is the kernel state that a link must have to count as right.
type wish struct {
	name string
	mtu  int // 0: any
	mode int // IFLA_IPOIB_MODE, -1: any
	addr netip.Prefix
}

// nic is what the kernel says of one link.
type nic struct {
	name  string
	flags uint32
	mtu   int
	mode  int
	addrs map[netip.Prefix]bool
}

const lowerUp = 1 << 16

// fulfils is asked at every notification: it must cost nothing beside the work.
func (n *nic) fulfils(w wish) bool {
	return n.name == w.name && n.flags&unix.IFF_UP != 0 && n.flags&lowerUp != 0 &&
		(w.mtu == 0 || n.mtu == w.mtu) && (w.mode < 0 || n.mode == w.mode) &&
		(!w.addr.IsValid() || n.addrs[w.addr])
}

// lacks returns in a few words what of a wish is not so.
func (n *nic) lacks(w wish) string {
	var out []string
	switch {
	case n.flags&unix.IFF_UP == 0:
		out = append(out, "down")
	case n.flags&lowerUp == 0:
		out = append(out, "no carrier")
	}
	if w.mode >= 0 && n.mode != w.mode {
		if word := map[int]string{0: "datagram", 1: "connected"}[n.mode]; word != "" {
			out = append(out, "mode "+word)
		} else {
			out = append(out, "mode unknown")
		}
	}
	if w.mtu != 0 && n.mtu != w.mtu {
		out = append(out, fmt.Sprintf("MTU %d", n.mtu))
	}
	if w.addr.IsValid() && !n.addrs[w.addr] {
		out = append(out, "no address")
	}
	return strings.Join(out, ", ")
}

// counts are exact: every notification is seen (the receive buffer fits all that the
// guest can send, and an overrun fails the run).
type counts struct {
	linkMsgs, addrMsgs int
	addrDeleted        int // IPv4 addresses taken off
	carrierLost        int // links whose IFF_LOWER_UP went from set to clear
}

// watch follows rtnetlink and knows at any time what the kernel's state is.
type watch struct {
	conn *netlink.Conn

	mu      sync.Mutex
	nics    map[int]*nic
	count   counts
	wishes  map[string]wish
	rightAt map[string]time.Time // when a wish came true last; absent while it is not
	away    map[string]time.Time // when an address of a link went
	awayMax time.Duration
	changed chan struct{} // closed and replaced at every event
	err     error
}

func newWatch() (*watch, error) {
	w := &watch{nics: map[int]*nic{}, wishes: map[string]wish{}, rightAt: map[string]time.Time{}, away: map[string]time.Time{},
		changed: make(chan struct{})}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	sc, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var serr error
	if err := sc.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}); err != nil || serr != nil {
		return nil, errors.Join(err, serr)
	}
	for _, g := range []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR} {
		if err := c.JoinGroup(g); err != nil {
			return nil, err
		}
	}
	w.conn = c
	dump, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	defer dump.Close()
	for typ, body := range map[netlink.HeaderType][]byte{unix.RTM_GETLINK: make([]byte, 16),
		unix.RTM_GETADDR: {unix.AF_INET, 0, 0, 0, 0, 0, 0, 0}} {
		msgs, err := dump.Execute(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump}, Data: body})
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			w.see(m, time.Now())
		}
	}
	w.count = counts{}
	go w.run()
	return w, nil
}

func (w *watch) run() {
	for {
		msgs, err := w.conn.Receive()
		now := time.Now()
		w.mu.Lock()
		if err != nil {
			w.err = err
		}
		for _, m := range msgs {
			w.see(m, now)
		}
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (w *watch) see(m netlink.Message, now time.Time) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		w.seeLink(m, now)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		w.seeAddr(m, now)
	}
}

func (w *watch) nic(index int) *nic {
	n := w.nics[index]
	if n == nil {
		n = &nic{mode: -1, addrs: map[netip.Prefix]bool{}}
		w.nics[index] = n
	}
	return n
}

func (w *watch) seeLink(m netlink.Message, now time.Time) {
	if len(m.Data) < 16 {
		return
	}
	w.count.linkMsgs++
	index := int(binary.NativeEndian.Uint32(m.Data[4:]))
	if m.Header.Type == unix.RTM_DELLINK {
		if n := w.nics[index]; n != nil {
			delete(w.rightAt, n.name)
		}
		delete(w.nics, index)
		return
	}
	n := w.nic(index)
	flags := binary.NativeEndian.Uint32(m.Data[8:])
	if n.flags&lowerUp != 0 && flags&lowerUp == 0 {
		w.count.carrierLost++
	}
	n.flags = flags
	old := n.name
	ad, err := netlink.NewAttributeDecoder(m.Data[16:])
	if err != nil {
		return
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			n.name = ad.String()
		case unix.IFLA_MTU:
			n.mtu = int(ad.Uint32())
		case unix.IFLA_LINKINFO:
			ad.Nested(func(li *netlink.AttributeDecoder) error {
				for li.Next() {
					if li.Type() == unix.IFLA_INFO_DATA {
						li.Nested(func(d *netlink.AttributeDecoder) error {
							for d.Next() {
								if d.Type() == 2 { // IFLA_IPOIB_MODE
									n.mode = int(d.Uint16())
								}
							}
							return nil
						})
					}
				}
				return nil
			})
		}
	}
	if old != "" && old != n.name {
		delete(w.rightAt, old)
	}
	w.judge(n, now)
}

func (w *watch) seeAddr(m netlink.Message, now time.Time) {
	if len(m.Data) < 8 || m.Data[0] != unix.AF_INET {
		return
	}
	w.count.addrMsgs++
	n := w.nic(int(binary.NativeEndian.Uint32(m.Data[4:])))
	ad, err := netlink.NewAttributeDecoder(m.Data[8:])
	if err != nil {
		return
	}
	var p netip.Prefix
	for ad.Next() {
		if b := ad.Bytes(); ad.Type() == unix.IFA_LOCAL && len(b) == 4 {
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), int(m.Data[1]))
		}
	}
	if m.Header.Type == unix.RTM_DELADDR {
		w.count.addrDeleted++
		delete(n.addrs, p)
		if _, ok := w.wishes[n.name]; ok {
			w.away[n.name] = now
		}
	} else {
		n.addrs[p] = true
		if t, ok := w.away[n.name]; ok {
			w.awayMax = max(w.awayMax, now.Sub(t))
			delete(w.away, n.name)
		}
	}
	w.judge(n, now)
}

// judge notes when a link's wish comes true, or is true no more.
func (w *watch) judge(n *nic, now time.Time) {
	wish, ok := w.wishes[n.name]
	if !ok {
		return
	}
	_, was := w.rightAt[n.name]
	switch is := n.fulfils(wish); {
	case is && !was:
		w.rightAt[n.name] = now
	case !is && was:
		delete(w.rightAt, n.name)
	}
}

// expect sets what must come true and starts the counts at zero.
func (w *watch) expect(wishes []wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wishes, w.rightAt, w.away, w.awayMax = map[string]wish{}, map[string]time.Time{}, map[string]time.Time{}, 0
	now := time.Now()
	for _, x := range wishes {
		w.wishes[x.name] = x
	}
	for _, n := range w.nics {
		w.judge(n, now)
	}
	w.count = counts{}
}

// outcome is how far the wishes came true.
type outcome struct {
	right, of   int
	first, last time.Duration // since start, of those that are right
	counts
	awayMax time.Duration
	wrong   map[string]string // what a link that is not right lacks
}

// whats returns what is not right, of three links at most.
func (o outcome) whats() string {
	var out []string
	for i, name := range slices.Sorted(maps.Keys(o.wrong)) {
		if i == 3 {
			out = append(out, fmt.Sprintf("%d more", len(o.wrong)-i))
			break
		}
		out = append(out, name+": "+o.wrong[name])
	}
	return strings.Join(out, "; ")
}

// settle waits until all wishes are true, or none came true for quiet, and
// reports times since start.
func (w *watch) settle(start time.Time, most, quiet time.Duration) (outcome, error) {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	idle := time.NewTimer(quiet)
	defer idle.Stop()
	best := -1
	for {
		w.mu.Lock()
		o, changed, err := w.outcome(start), w.changed, w.err
		w.mu.Unlock()
		if err != nil {
			return o, err
		}
		if o.right == o.of {
			return o, nil
		}
		if o.right != best {
			best = o.right
			idle.Reset(quiet)
		}
		select {
		case <-changed:
		case <-idle.C:
			return o, nil
		case <-deadline.C:
			return o, nil
		}
	}
}

func (w *watch) outcome(start time.Time) outcome {
	o := outcome{of: len(w.wishes), right: len(w.rightAt), counts: w.count, awayMax: w.awayMax}
	for _, t := range w.rightAt {
		d := t.Sub(start)
		if o.first == 0 || d < o.first {
			o.first = d
		}
		o.last = max(o.last, d)
	}
	return o
}

// failed is why the notifications could not be read, if so.
func (w *watch) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// now is the outcome at this moment, with what is wrong.
func (w *watch) now(start time.Time) outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.outcome(start)
	if o.right == o.of {
		return o
	}
	o.wrong = map[string]string{}
	for name := range w.wishes {
		if _, ok := w.rightAt[name]; !ok {
			o.wrong[name] = "no such link"
		}
	}
	for _, n := range w.nics {
		if _, ok := o.wrong[n.name]; ok {
			o.wrong[n.name] = n.lacks(w.wishes[n.name])
		}
	}
	return o
}
