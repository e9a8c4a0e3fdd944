// Package cardwatch reports to the daemon when another program changes what package roce
// configures: DCB settings and queues of a link, devlink's ports and parameters, the
// host's name.
package cardwatch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/ethtool"
)

// Sources are the event sources, for daemon.Watch.
func Sources() []daemon.EventSource {
	return []daemon.EventSource{{Name: "data centre bridging", Open: bridging}, {Name: "devlink", Open: cards},
		{Name: "ethtool", Open: queues}}
}

func bridging() (daemon.EventSocket, error) {
	ev, err := dcb.Listen(0)
	if err != nil {
		return nil, fmt.Errorf("listen to data centre bridging: %w", err)
	}
	return daemon.SocketOf(ev, func(s *daemon.Scope, e dcb.Event) {
		if i, err := indexOf(ev.FD(), e.Link); err == nil {
			s.Join(daemon.Scope{Links: map[int]bool{i: true}})
		}
	}), nil
}

// indexOf requests the index of one link, through any socket of its network
// namespace; net.InterfaceByName lists all links for it.
func indexOf(socket int, name string) (int, error) {
	r, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(socket, unix.SIOCGIFINDEX, r)
	}
	if err != nil {
		return 0, fmt.Errorf("index of %s: %w", name, err)
	}
	return int(r.Uint32()), nil
}

func cards() (daemon.EventSocket, error) {
	c, err := devlink.Dial()
	if errors.Is(err, devlink.ErrNoDevlink) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listen to devlink: %w", err)
	}
	defer func() { _ = c.Close() }()
	ev, err := c.Listen(0)
	if err != nil {
		return nil, fmt.Errorf("listen to devlink: %w", err)
	}
	return daemon.SocketOf(ev, func(s *daemon.Scope, _ devlink.Event) { s.RDMA = true }), nil
}

func queues() (daemon.EventSocket, error) {
	c, err := ethtool.Dial()
	if errors.Is(err, ethtool.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listen to ethtool: %w", err)
	}
	defer func() { _ = c.Close() }()
	ev, err := c.Listen(0)
	if err != nil {
		return nil, fmt.Errorf("listen to ethtool: %w", err)
	}
	return daemon.SocketOf(ev, func(s *daemon.Scope, e ethtool.Event) {
		s.Join(daemon.Scope{Links: map[int]bool{e.Index: true}})
	}), nil
}
