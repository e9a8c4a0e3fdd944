package card

import (
	"cmp"
	"fmt"
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
	tries  int       // that ended elsewhere although the index reads as empty
	until  time.Time // not to be tried again before
}

// An index that is not given is retried after stuckFirst, then after twice the
// time, stuckMost at most.
const (
	stuckFirst = 10 * time.Millisecond
	stuckMost  = time.Minute
)

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
	m.unread = true
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

// stuck lists the indexes of a port that were not given to the address that was moved
// there, and are not to be tried now.
func (o *Observer) stuck(dev string, port int, gids []roce.GID, settled bool) (out []int) {
	now := time.Now()
	for at, m := range o.moves {
		if at.dev != dev || at.port != port {
			continue
		}
		if m.unread && settled {
			m.unread = false
			if slices.ContainsFunc(gids, func(e roce.GID) bool { return e.Index == at.index }) {
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
	return out
}
