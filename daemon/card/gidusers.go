package card

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// gidUsers lists the processes that may refer to entries of a device's GID tables.
func (o *Observer) gidUsers(device uint32) (out []roce.GIDUser) {
	if open(&o.rd, rdmanl.Dial) != nil {
		return nil
	}
	hs, err := o.rd.Holders(device)
	if err != nil {
		return nil // a kernel before 4.17, or the device is gone
	}
	at := map[string]int{}
	for _, h := range hs {
		key := fmt.Sprint(h.PID, h.Kernel)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, roce.GIDUser{PID: h.PID, Program: cmp.Or(h.Kernel, o.comm(h.PID))})
		}
		if h.Address.IsValid() {
			out[i].Bound++
		} else {
			out[i].QueuePairs++
		}
	}
	slices.SortFunc(out, func(a, b roce.GIDUser) int { return cmp.Or(a.PID-b.PID, strings.Compare(a.Program, b.Program)) })
	return out
}

// comm is the name of a process, "" if it is hidden from the daemon.
func (o *Observer) comm(pid int) string {
	if pid == 0 {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(o.root, "proc", fmt.Sprint(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "?")
}

// movedTo is an index that an address was moved to.
type movedTo struct {
	dev         string
	port, index int
}

// moved is the result of moving an address to an index.
type moved struct {
	unread bool
	op     roce.MoveGID
	at     time.Time
	addrs  []netip.Prefix // of the port's links when the table was first read after it
	tries  int            // that did not give the index
	until  time.Time      // not to be tried again before
}

// An index that is not given is retried after stuckFirst, then after twice the
// time, stuckMost at most.
const (
	stuckFirst = 10 * time.Millisecond
	stuckMost  = time.Minute
)

// The kernel moves an entry some time after the address: a work item of an ordered queue (roce_gid_mgmt.c). A table that
// has the entry at its index of before is read again for appliedFirst, after each try for twice the time, appliedMost at
// most. An index that is not given back leaves it so too.
const (
	appliedFirst = 50 * time.Millisecond
	appliedMost  = time.Second
)

// pending is when a table that agrees with the addresses is read again because the move may not have taken effect, 0 if it has.
func (m moved) pending(gids []roce.GID, now time.Time) time.Duration {
	taken, most := now.Sub(m.at), min(appliedFirst<<min(m.tries, 16), appliedMost)
	if !m.unread || !m.unchanged(gids) || taken >= most {
		return 0
	}
	return min(indexFirst+taken/4, most-taken)
}

// superseded reports whether addresses have changed since the table was first read after the move. A table that agrees then
// is that of after the move, and says nothing about it.
func (m *moved) superseded(addrs []link.Address) bool {
	now := make([]netip.Prefix, 0, len(addrs))
	for _, a := range addrs {
		now = append(now, a.Prefix)
	}
	slices.SortFunc(now, netip.Prefix.Compare)
	if m.addrs == nil {
		m.addrs = now
	}
	return !slices.Equal(m.addrs, now)
}

// unchanged reports whether the entry that was moved is at its index of before.
func (m moved) unchanged(gids []roce.GID) bool {
	if m.op.From == 0 {
		return false
	}
	e, ok := roce.Port{GIDs: gids}.GIDOf(m.op.Move[0].Address.Prefix.Addr(), m.op.On.Link, 2)
	return ok && e.Index == m.op.From
}

// Moving reports an *inUse if a queue pair may refer to what an operation moves: it
// may be new since the plan was made. The result is judged by what is read next.
func (o *Observer) Moving(op roce.MoveGID) error {
	if o.snap != nil {
		if d, ok := o.snap.Device(op.On.IBDevice); ok && !o.fresh(d, op) {
			if us := o.gidUsers(d.Index); len(us) > 0 {
				return &inUse{fmt.Sprintf("%s has queue pairs", op.On.IBDevice)}
			}
		}
	}
	at := movedTo{op.On.IBDevice, op.On.Port, op.Index}
	m := o.moves[at]
	m.unread, m.op, m.at, m.addrs = true, op, time.Now(), nil
	o.moves[at] = m
	return nil
}

// fresh reports that nothing that is moved had a GID when the table was last read.
func (o *Observer) fresh(d *link.Device, op roce.MoveGID) bool {
	if o.last == nil {
		return false
	}
	p := o.last.Devices[d.Name].Ports[op.On.Port]
	return !slices.ContainsFunc(op.Move, func(m link.AddAddress) bool {
		_, ok := p.GIDOf(m.Address.Prefix.Addr(), m.On.Link, 2)
		return ok
	})
}

// judge lists the indexes of a port that were not given to the address that was moved
// there, and are not to be tried now. wait is when to read the table again, 0 if no move is pending.
func (o *Observer) judge(dev string, port int, gids []roce.GID, addrs []link.Address, settled bool) (out []int, wait time.Duration) {
	now := time.Now()
	for at, m := range o.moves {
		if at.dev != dev || at.port != port {
			continue
		}
		if m.unread {
			m.unread = !m.superseded(addrs)
			o.moves[at] = m
		}
		if d := m.pending(gids, now); d > 0 && settled {
			if wait == 0 || d < wait {
				wait = d
			}
		} else if m.unread && settled {
			m.unread = false
			if !m.unchanged(gids) && slices.ContainsFunc(gids, func(e roce.GID) bool { return e.Index == at.index }) {
				delete(o.moves, at)
				continue
			}
			m.until = now.Add(min(stuckFirst<<min(m.tries, 16), stuckMost))
			m.tries++
			o.moves[at] = m
		}
		if now.Before(m.until) {
			out = append(out, at.index)
		}
	}
	slices.Sort(out)
	return out, wait
}
