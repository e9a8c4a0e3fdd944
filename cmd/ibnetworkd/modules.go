package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// moduleRetry is the pause after a module could not be loaded.
const moduleRetry = time.Minute

// wantedModule is a module of a [Modules] section.
type wantedModule struct {
	name, unit string
	pos        units.Position
}

// modulesOf are the modules that units name, each once.
func modulesOf(set *units.Set) []wantedModule {
	out := []wantedModule{}
	for _, u := range set.Units {
		for _, m := range u.Modules.Load {
			if !slices.ContainsFunc(out, func(w wantedModule) bool { return w.name == m.V }) {
				out = append(out, wantedModule{m.V, u.Path, m.Pos})
			}
		}
	}
	return out
}

// present reports whether a module shows itself.
func present(module string) bool {
	_, err := os.Stat(filepath.Join("/sys/module", strings.ReplaceAll(module, "-", "_")))
	return err == nil
}

// loadModules loads the modules of [Modules] sections, each once while a unit
// names it. What could not be loaded is a notice.
func (o *outside) loadModules(ctx context.Context) error {
	done := map[string]bool{}
	failed := map[string]link.Reason{}
	var want []wantedModule
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case want = <-control.modules:
		case <-again.C:
		case <-o.systemd.Connected():
			if !o.unasked.Swap(false) {
				continue
			}
		}
		again.Stop()
		for m := range done {
			if !named(want, m) {
				delete(done, m)
			}
		}
		for m := range failed {
			if !named(want, m) {
				delete(failed, m)
			}
		}
		for _, m := range want {
			if done[m.name] {
				continue
			}
			why := link.Reason{}
			if !present(m.name) {
				err := o.loader.Load(ctx, m.name)
				if err != nil {
					again.Reset(moduleRetry)
				}
				if why = loaded(m, err); why == (link.Reason{}) {
					o.log.Info("loaded a module", "module", m.name, "unit", m.unit)
				}
			}
			// One that modprobe does not know is asked for again at the next reload.
			done[m.name] = why == (link.Reason{})
			failed[m.name] = why
		}
		var notices []link.Notice
		for _, m := range want {
			if why := failed[m.name]; why != (link.Reason{}) {
				notices = append(notices, link.Notice{Unit: m.unit, Reason: why})
			}
		}
		o.daemon.Notice("modules", notices...)
	}
}

func named(want []wantedModule, module string) bool {
	return slices.ContainsFunc(want, func(w wantedModule) bool { return w.name == module })
}

// loaded is why a module is not there after it was asked for, zero if it is.
func loaded(m wantedModule, err error) link.Reason {
	r := link.Reason{Code: link.CodeModule, Next: "modprobe -v " + m.name + "; where that succeeds write the module's own name: modinfo -F name " + m.name}
	switch {
	case err != nil:
		r.Text = fmt.Sprintf("the module %s (Load=, %s) cannot be loaded: %v", m.name, m.pos, err)
	case !present(m.name):
		// systemd's modprobe@.service does not fail.
		r.Text = fmt.Sprintf("the module %s (Load=, %s) is not there after modprobe has run: this kernel lacks it, or the name is an alias or built in", m.name, m.pos)
	default:
		return link.Reason{}
	}
	return r
}
