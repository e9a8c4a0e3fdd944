package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing/fstest"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/files"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

// managerSteps is what the running daemon does about subnet managers when the units
// of sys are in force, or why the daemon was not asked.
func (a *app) managerSteps(ctx context.Context, sys *system) (steps []answer.ManagerStep, not string) {
	switch {
	case a.root != "" || !slices.ContainsFunc(sys.snap.Devices, hasInfiniBand):
		return nil, "" // no host to ask, or no port for a subnet manager
	case !sys.live:
		return nil, "a recorded system"
	case a.noBus:
		return nil, "--no-bus"
	}
	c, err := connect(ctx)
	if err != nil {
		return nil, err.Error()
	}
	defer c.close()
	d, err := c.describe(ctx)
	if err != nil {
		return nil, err.Error()
	}
	return outlook(sys, d.SubnetManagers, worker.Dir(stateDir+"/sm"), files.New("")), ""
}

func hasInfiniBand(d link.Device) bool {
	return slices.ContainsFunc(d.Ports, func(p link.Port) bool { return p.Layer == ib.LinkLayerInfiniBand })
}

// outlook is managerSteps from what the daemon says and has handed to its workers.
func outlook(sys *system, sms []smctl.Status, kept worker.Dir, check files.Checker) (out []answer.ManagerStep) {
	// By fabric: the steps that stop a manager, and how many managers one of those knows of.
	stopped, known := map[fabricID][]int{}, map[fabricID]int{}
	for _, s := range sms {
		g, err := ib.ParseGUID(s.PortGUID)
		if err != nil || s.WorkerState == "" {
			continue // what the daemon does then depends on what systemd reports
		}
		port := fmt.Sprintf("%s/%d", s.IBDevice, s.Port)
		u, gone := governed(sys, s.IBDevice, s.Port)
		pol := smctl.PolicyOf(u)
		k := kept.Load(g)
		r := smctl.Running{State: workerState(s.WorkerState), Phase: s.Phase, Unit: s.Worker, Override: k.Override,
			StatusText: smctl.ParseStatusText(s.WorkerText),
			Engine:     k.Engine, Settings: k.Settings, Files: k.Files, Named: worker.UnitName(pol.Engine, g), Gone: gone}
		_, f := check.Check(pol)
		steps := smctl.Outlook(port, r, pol, f)
		if len(steps) == 1 && strings.HasPrefix(steps[0].Command, "systemctl stop ") && r.StatusText.Known {
			on := fabricOf(sys, s.IBDevice, s.Port)
			stopped[on] = append(stopped[on], len(out))
			known[on] = max(known[on], r.StatusText.Others+1)
		}
		for _, step := range steps {
			out = append(out, answer.ManagerStep{Port: port, Command: step.Command, Note: step.Note})
		}
	}
	for on, steps := range stopped {
		if len(steps) > 1 && len(steps) == known[on] {
			for _, i := range steps {
				out[i].Note = "the fabric is left without a subnet manager; " + out[i].Note
			}
		}
	}
	return out
}

// fabricID is what the ports of one fabric have in common.
type fabricID struct {
	prefix uint64
	sm     ib.LID
}

func fabricOf(sys *system, dev string, num int) (f fabricID) {
	if d, ok := sys.snap.Device(dev); ok {
		for _, p := range d.Ports {
			if p.Num == num {
				f.prefix, f.sm = p.SubnetPrefix, p.SMLID
			}
		}
	}
	return f
}

// governed is the unit of a port, and why it is, or is about to be, no InfiniBand port.
func governed(sys *system, dev string, num int) (u *units.Unit, gone string) {
	d, ok := sys.snap.Device(dev)
	if !ok {
		return nil, fmt.Sprintf("port %s/%d does not exist", dev, num)
	}
	i := slices.IndexFunc(d.Ports, func(p link.Port) bool { return p.Num == num })
	if i < 0 {
		return nil, fmt.Sprintf("port %s/%d does not exist", dev, num)
	}
	p := &d.Ports[i]
	u = sys.unitOfPort(d, p)
	switch {
	case p.Layer != ib.LinkLayerInfiniBand:
		return u, fmt.Sprintf("the link layer of port %s/%d is %v", dev, num, p.Layer)
	case u != nil && u.Port.Type.Set && u.Port.Type.V == units.PortTypeEth:
		return u, fmt.Sprintf("%s makes port %s/%d an Ethernet port", u.Path, dev, num)
	}
	return u, ""
}

func workerState(word string) smctl.WorkerState {
	for s := smctl.WorkerInactive; s <= smctl.WorkerFailed; s++ {
		if s.String() == word {
			return s
		}
	}
	return smctl.WorkerInactive
}

// addText adds a text file to a file system in memory; a name that leaves it is left out.
func addText(m fstest.MapFS, name, text string) {
	if fs.ValidPath(name) {
		m[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
	}
}

// withFiles are the units as they will be with these texts of files, by absolute
// name, in place.
func (a *app) withFiles(texts map[string][]byte) *units.Set {
	roots := a.roots()
	for i, r := range roots {
		m := fstest.MapFS{}
		for name, text := range texts {
			if rel, ok := strings.CutPrefix(name, r.Path+"/"); ok {
				addText(m, rel, string(text))
			}
		}
		if len(m) == 0 {
			continue
		}
		roots[i].FS = m
		if r.FS != nil {
			roots[i].FS = overlay{r.FS, m}
		}
	}
	return units.Load(roots).WithTables(nil, a.addressTable)
}

// overlay is a directory with the texts of some files in place of its own.
type overlay struct {
	base fs.FS
	new  fstest.MapFS
}

func (o overlay) Open(name string) (fs.File, error) {
	if _, ok := o.new[name]; ok {
		return o.new.Open(name)
	}
	f, err := o.base.Open(name)
	if err != nil {
		return o.new.Open(name) // a directory of new files only, or nothing
	}
	return f, nil
}

func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	old, err := fs.ReadDir(o.base, name)
	more, merr := fs.ReadDir(o.new, name)
	if err != nil && merr != nil {
		return nil, err
	}
	seen := map[string]fs.DirEntry{}
	for _, e := range append(old, more...) {
		seen[e.Name()] = e
	}
	var out []fs.DirEntry
	for _, n := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, seen[n])
	}
	return out, nil
}

// Lstat implements fs.ReadLinkFS: masks are links.
func (o overlay) Lstat(name string) (fs.FileInfo, error) {
	if _, ok := o.new[name]; ok {
		return fs.Stat(o.new, name)
	}
	fi, err := fs.Lstat(o.base, name)
	if err != nil {
		return fs.Stat(o.new, name)
	}
	return fi, nil
}

func (o overlay) ReadLink(name string) (string, error) {
	if _, ok := o.new[name]; ok {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return fs.ReadLink(o.base, name)
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
		fmt.Fprintln(a.err, "what it would change is unknown:", err)
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
