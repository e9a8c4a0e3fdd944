package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/files"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

// managerSteps is what the running daemon does about subnet managers when the units
// of sys are in force; none where no daemon runs.
func (a *app) managerSteps(ctx context.Context, sys *system) []answer.ManagerStep {
	if a.root != "" || a.noBus || !sys.live {
		return nil
	}
	c, err := connect(ctx)
	if err != nil {
		return nil
	}
	defer c.close()
	d, err := c.describe(ctx)
	if err != nil {
		return nil
	}
	return outlook(sys, d.SubnetManagers, worker.Dir(stateDir+"/sm"), files.New(""))
}

// outlook is managerSteps from what the daemon says and has handed to its workers.
func outlook(sys *system, sms []api.SMStatus, kept worker.Dir, check files.Checker) (out []answer.ManagerStep) {
	for _, s := range sms {
		d, ok := sys.snap.Device(s.IBDevice)
		g, err := ib.ParseGUID(s.PortGUID)
		if !ok || err != nil {
			continue
		}
		for j := range d.Ports {
			p := &d.Ports[j]
			if p.Num != s.Port || p.Layer != ib.LinkLayerInfiniBand {
				continue
			}
			pol := smctl.PolicyOf(sys.unitOfPort(d, p))
			k := kept.Load(g)
			r := smctl.Running{State: workerState(s.WorkerState), Phase: smctl.Phase(s.Phase), Unit: s.Worker, Hand: k.Hand, Said: smctl.ParseSaid(s.WorkerText),
				Engine: k.Engine, Settings: k.Settings, Files: k.Files, Named: worker.UnitName(pol.Engine, g)}
			_, f := check.Check(pol)
			if pol.PartitionsFile+pol.NodeNameMap+pol.KeyFile == "" {
				f = smctl.Files{}
			}
			port := fmt.Sprintf("%s/%d", s.IBDevice, s.Port)
			for _, step := range smctl.Outlook(port, r, pol, f) {
				out = append(out, answer.ManagerStep{Port: port, Command: step.Command, Note: step.Note})
			}
		}
	}
	return out
}

func workerState(word string) smctl.WorkerState {
	for s := smctl.WorkerInactive; s <= smctl.WorkerFailed; s++ {
		if s.String() == word {
			return s
		}
	}
	return smctl.WorkerInactive
}

// withFiles are the units as they will be with these texts of files, by absolute
// name, in place.
func (a *app) withFiles(texts map[string][]byte) *units.Set {
	roots := a.roots()
	for i, r := range roots {
		m := memFS{}
		for name, text := range texts {
			if rel, ok := strings.CutPrefix(name, r.Path+"/"); ok {
				m.add(rel, string(text))
			}
		}
		if len(m) == 0 {
			continue
		}
		if r.FS != nil {
			m.copy(r.FS)
		}
		roots[i].FS = m
	}
	return units.Load(roots)
}

// copy adds the unit files and drop-ins of a directory that are not in m.
func (m memFS) copy(dir fs.FS) {
	_ = fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if e.IsDir() {
			if name != "." && !strings.HasSuffix(name, ".d") {
				return fs.SkipDir
			}
			return nil
		}
		if _, ok := m[name]; ok || !strings.HasSuffix(name, units.Suffix) && !strings.HasSuffix(name, ".conf") {
			return nil
		}
		// A mask is a link to /dev/null: an empty file means the same.
		if st, err := fs.Stat(dir, name); err != nil || st.Size() > units.MaxFile || !st.Mode().IsRegular() && st.Mode()&fs.ModeDevice == 0 {
			return nil
		}
		if b, err := fs.ReadFile(dir, name); err == nil {
			m.add(name, string(b))
		}
		return nil
	})
}

// preview prints what these texts of files would change.
func (a *app) preview(ctx context.Context, texts map[string][]byte) {
	set := a.withFiles(texts)
	for _, p := range files.New(a.root).Set(set) {
		fmt.Fprintln(a.err, p)
	}
	if a.root != "" {
		return
	}
	sys, err := a.observe(ctx)
	if err != nil {
		fmt.Fprintln(a.err, "what it would change is not known:", err)
		return
	}
	quiet := *a
	quiet.json, quiet.out = false, a.err
	next := newSystem(sys.snap, set, sys.record)
	next.live = true
	_ = quiet.printPlan(ctx, next)
}

// interactive reports whether a person can answer a question.
func (a *app) interactive() bool {
	f, ok := a.in.(*os.File)
	return ok && isTerminal(f)
}
