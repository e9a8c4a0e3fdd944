package app

import (
	"context"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/cardwatch"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// watchHostname observes again when the host's name changes.
func (a *App) watchHostname(ctx context.Context) error {
	if err := cardwatch.Hostname(ctx, func() { a.daemon.Wake(renamed(a.daemon.Snapshot())) }); err != nil {
		a.log.Warn("changes of the host's name are not seen", "error", err)
	}
	return nil
}

// renamed is what to observe when the host has another name: [Match] may ask for it,
// and the ports of links may have it in their node descriptions.
func renamed(s *link.Snapshot) daemon.Scope {
	links := map[int]bool{}
	if s != nil {
		for i := range s.Links {
			l := &s.Links[i]
			if _, p := roce.PortOf(s, l); p != nil && !l.IsChild() {
				links[l.Index] = true
			}
		}
	}
	return daemon.Scope{Reload: true, RDMA: true, Force: links}
}

// watchOthers observes the links that another network manager adopts or releases.
func (a *App) watchOthers(ctx context.Context) error {
	if err := daemon.Beside(ctx, a.host.root, a.daemon.Wake); err != nil {
		a.log.Warn("links that other network managers release are seen late", "error", err)
	}
	return nil
}
