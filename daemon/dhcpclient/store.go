package dhcpclient

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/link"
)

// Dir is the directory of leases below that of the daemon's state.
const Dir = "leases"

// saved is a lease as it is kept over a restart.
type saved struct {
	Link     string     `json:"link"`
	Ifindex  int        `json:"ifindex"`
	ClientID []byte     `json:"client_id"`
	ByRouter bool       `json:"by_router,omitempty"` // a router advertisement has begun the client
	Slave    ib.HWAddr  `json:"slave,omitzero"`      // of which a bond's ClientID is made
	Lease    link.Lease `json:"lease"`
}

// mostSaved bounds a file, in bytes.
const mostSaved = 64 << 10

// store is the directory of the files of a family, LINK.json each.
type store struct {
	dir string
	six bool
}

func (s store) path(name string) string { return filepath.Join(s.dir, name+".json") }

// sound reports whether a client can begin with what a file has.
func (s store) sound(l *link.Lease) bool {
	if id, err := hex.DecodeString(l.ServerID); s.six {
		return err == nil && len(id) > 0 && l.Server.Is6() && (!l.Address.IsValid() || l.Address.Addr().Is6())
	}
	return l.Address.Addr().Is4() && l.Server.Is4()
}

// load reads the files. One that cannot be read is as none: the server knows the lease.
func (s store) load() map[string]saved {
	out := map[string]saved{}
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return out
	}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		b, err := smallfile.ReadRegular(s.path(name), mostSaved)
		var x saved
		if err != nil || json.Unmarshal(b, &x) != nil || x.Link != name || !s.sound(&x.Lease) {
			continue
		}
		out[name] = x
	}
	return out
}

func (s store) save(x saved) error {
	if strings.ContainsRune(x.Link, '/') {
		return fmt.Errorf("%q cannot be the name of a file", x.Link)
	}
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("encode the lease: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of leases: %w", err)
	}
	return smallfile.Replace(s.path(x.Link), append(b, '\n'), 0o644)
}

func (s store) remove(name string) error {
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the lease: %w", err)
	}
	return nil
}

// forget drops the kept DHCPv6 leases of links that have no such client any more: the unit asked
// for one when the daemon ran last, and no router does now.
func (c *Clients) forget(links []*link.Link) {
	for _, l := range links {
		name := savedKey{l.Name, true}
		if s, ok := c.saved[name]; !ok || s.Ifindex != l.Index {
			continue
		}
		delete(c.saved, name)
		delete(c.views, key{l.Index, true})
		c.stale = append(c.stale, l.Name)
		c.wake(map[int]bool{l.Index: true})
	}
	if len(c.stale) > 0 {
		select {
		case c.kick <- struct{}{}:
		default:
		}
	}
}
