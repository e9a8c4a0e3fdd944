package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"ibnetworkd/daemon"
	"ibnetworkd/units"
)

// unitSource gives the loop its units.
type unitSource struct {
	dirs *daemon.UnitDirs
	// watched reports that files are applied when they change. Otherwise they wait for
	// a request.
	watched bool
	// load reads the units, request says that the next load is one that was asked for.
	load    func() *units.Set
	request func()
	// reports reads the watches on the directories; nil if they are not watched.
	reports func(context.Context) error
}

// newUnitSource reads below root and keeps the last good version of each file in copies.
func newUnitSource(root string, watched bool, copies string, log *slog.Logger) *unitSource {
	dirs := daemon.NewUnitDirs(root)
	dirs.KeepCopies(copies, log)
	u := &unitSource{dirs: dirs, watched: watched, load: dirs.Load, request: dirs.Invalidate}
	if !watched {
		u.load, u.request = onRequest(u.load, u.request)
	}
	return u
}

// open has changed called for changes of files from now on, while watch runs.
func (u *unitSource) open(log *slog.Logger, changed func()) (err error) {
	u.reports, err = u.dirs.Watch(log, changed)
	return err
}

func (u *unitSource) watch(ctx context.Context) error {
	if u.reports == nil {
		return nil
	}
	return u.reports(ctx)
}

// onRequest makes loads that were not requested give the units of the last one that
// was: the loop loads for other reasons too, which must not apply an edit that waits.
func onRequest(load func() *units.Set, request func()) (func() *units.Set, func()) {
	var requested atomic.Bool
	requested.Store(true)
	var mu sync.Mutex
	var last *units.Set
	return func() *units.Set {
			mu.Lock()
			defer mu.Unlock()
			if requested.Swap(false) {
				last = load()
			}
			return last
		}, func() {
			requested.Store(true)
			request()
		}
}

func (a *App) unitFilesChanged() {
	// Where edits wait for a reload it is for the network namespaces that units name.
	a.daemon.Wake(daemon.Scope{Reload: true})
	a.edits.Units()
}

// reload reads the units, and the files that [SubnetManager] names, and returns when
// they are applied.
func (a *App) reload(ctx context.Context) error {
	a.sm.Reread()
	err := a.daemon.Reload(ctx)
	a.edits.Units()
	return err
}
