// Package cardwatch wakes the daemon when somebody changes what package roce
// looks after: DCB settings of a link, and devlink's ports and parameters.
package cardwatch

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
)

// Run listens until ctx ends. What this kernel does not have is left out.
func Run(ctx context.Context, log *slog.Logger, wake func(daemon.Scope)) {
	everything := daemon.Scope{All: true, RDMA: true}
	ev, err := dcb.Subscribe(ctx, 0)
	if err != nil {
		log.Warn("no events of data centre bridging", "error", err)
		ev = nil
	}
	var port <-chan struct{}
	dev := subscribe(ctx, log)
	if dev != nil {
		port = dev.C()
	}
	var link <-chan struct{}
	if ev != nil {
		link = ev.C()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-link:
			b := ev.Take()
			if b.Overrun {
				wake(everything)
			}
			links := map[int]bool{}
			for _, e := range b.Events {
				if i, err := net.InterfaceByName(e.Link); err == nil {
					links[i.Index] = true
				}
			}
			if len(links) > 0 {
				wake(daemon.Scope{Links: links})
			}
			if b.Err != nil {
				link = nil
				log.Warn("no more events of data centre bridging", "error", b.Err)
				wake(everything)
			}
		case <-port:
			b := dev.Take()
			if len(b.Events) > 0 || b.Overrun {
				wake(daemon.Scope{RDMA: true})
			}
			if b.Err != nil {
				port = nil
				log.Warn("no more devlink events", "error", b.Err)
			}
		}
	}
}

func subscribe(ctx context.Context, log *slog.Logger) *devlink.Events {
	c, err := devlink.Dial()
	if errors.Is(err, devlink.ErrNoDevlink) {
		return nil
	}
	if err != nil {
		log.Warn("no devlink events", "error", err)
		return nil
	}
	ev, err := c.Subscribe(ctx, 0)
	_ = c.Close()
	if err != nil {
		log.Warn("no devlink events", "error", err)
		return nil
	}
	return ev
}
