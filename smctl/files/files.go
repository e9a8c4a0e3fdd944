// Package files checks the files that [SubnetManager] names as the worker reads
// them: that they exist, that the worker's user can read them, and that they parse.
// The daemon calls it before it starts or reloads a worker, ibnetctl verify before
// anything is done.
package files

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/qos/policy"
	"ibnetworkd/sm/route"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// User is the user that runs ibnetsm (ibnetsm@.service).
const User = "ibnetsm"

// maxNames bounds in bytes what is read of a node name map.
const maxNames = 8 << 20

// What is used instead of a bad file.
const (
	keptPartitions = "a running subnet manager keeps the partitions that it has, one that starts uses the last good file, or the " +
		"default partition"
	keptOpenSM  = "a running opensm is not reloaded, one that starts uses the default partition"
	keptNames   = "the names that can be read are used"
	keptPolicy  = "a running subnet manager keeps the policy that it has, one that starts uses none"
	keptGUIDs   = "a running subnet manager keeps what it has read, one that starts does not use the file"
	keptLines   = "the other lines are used"
	keptEngine  = "a running subnet manager stays, none is started"
	keptRouting = "the next engine in the list is used, or the one that fits the subnet"
	keptKeys    = "a running subnet manager keeps its keys, none is started without them"
)

// Problem is one thing wrong with a file.
type Problem struct {
	// File, Line and Column are the place in the file; line 0 is all of it.
	File         string
	Line, Column int
	// Key is the setting that names the file.
	Key string
	// Message is a sentence without a full stop, Kept what is used instead.
	Message, Kept string
	// Fatal is whether the program cannot use the file.
	Fatal bool
}

// String is the place and what is wrong.
func (p Problem) String() string {
	switch {
	case p.Line == 0:
		return p.File + ": " + p.Message
	case p.Column == 0:
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Checker checks files.
type Checker struct {
	// Root is the directory used as /; below another one users are not checked.
	Root string
	// UID and GIDs are those of ibnetsm; UID -1 leaves out what they may read.
	UID  int
	GIDs []int
}

// openSM is the Checker of opensm, which the daemon runs as root, but without the
// capability to read any file.
func (c Checker) openSM() Checker {
	if c.Root == "" || filepath.Clean(c.Root) == "/" {
		c.UID, c.GIDs = 0, []int{0}
	}
	return c
}

// New makes a Checker for the files below root.
func New(root string) Checker {
	c := Checker{Root: root, UID: -1}
	if root != "" && filepath.Clean(root) != "/" {
		return c
	}
	u, err := user.Lookup(User)
	if err != nil {
		return c // not installed
	}
	if c.UID, err = strconv.Atoi(u.Uid); err != nil {
		c.UID = -1
		return c
	}
	if ids, err := u.GroupIds(); err == nil {
		for _, s := range append(ids, u.Gid) {
			if g, err := strconv.Atoi(s); err == nil {
				c.GIDs = append(c.GIDs, g)
			}
		}
	}
	return c
}

// Check reads the files of a policy. The digest changes with their contents.
func (c Checker) Check(p smctl.Policy) ([]Problem, smctl.Files) {
	var out []Problem
	var digest []string
	add := func(name string, text []byte, err error) {
		kind := "text"
		if u := (unchecked{}); errors.As(err, &u) {
			kind, text = "stamp", []byte(u.stamp)
		} else if err != nil {
			kind = "error"
		}
		h := sha256.Sum256(text)
		digest = append(digest, name+":"+kind+":"+hex.EncodeToString(h[:16]))
	}
	worker, kept := c, keptPartitions
	if p.Engine == smctl.EngineOpenSM {
		worker, kept = c.openSM(), keptOpenSM
		_, err := os.Stat(filepath.Join(cmp.Or(c.Root, "/"), smctl.OpenSM))
		if errors.Is(err, fs.ErrNotExist) {
			out = append(out, Problem{File: smctl.OpenSM, Key: "Engine",
				Message: "not installed: install opensm, or write Engine=builtin", Kept: keptEngine, Fatal: true})
		}
		add("opensm", nil, err)
	}
	// check reads a file: what is wrong with it is like, and with mistakes
	// in place of like.Kept where it could be read.
	check := func(name string, most int, like Problem, mistakes string, parse func(file string, text []byte) error) {
		if like.File == "" {
			return
		}
		text, err := worker.read(like.File, most)
		if u := (unchecked{}); errors.As(err, &u) {
			out = append(out, Problem{File: like.File, Key: like.Key, Message: u.Error()})
		} else if err != nil {
			like.Message = plain(err)
			out = append(out, like)
		} else {
			like.Kept = mistakes
			out = append(out, problems(like, parse(like.File, text))...)
		}
		add(name, text, err)
	}
	check("partitions", partition.MaxFileSize, Problem{File: p.PartitionsFile, Key: "PartitionsFile", Kept: kept, Fatal: true}, kept,
		func(file string, text []byte) error { _, err := partition.Parse(file, text); return err })
	check("names", maxNames, Problem{File: p.NodeNameMap, Key: "NodeNameMap", Kept: keptNames}, keptNames,
		func(file string, text []byte) error { _, err := fabric.ParseNames(file, text); return err })
	check("policy", policy.MaxFileSize, Problem{File: p.QoSPolicyFile, Key: "QoSPolicyFile", Kept: keptPolicy}, keptPolicy,
		func(file string, text []byte) error { _, err := policy.Parse(file, text); return err })
	for _, x := range p.GUIDFiles() {
		if x.Option != "" || p.Engine != smctl.EngineOpenSM {
			check(x.Key, guidfile.MaxFileSize, Problem{File: x.Path, Key: x.Key, Kept: keptGUIDs}, keptLines,
				func(file string, text []byte) error { return guidfile.Check(x.Key, file, text) })
		}
	}
	if f := p.KeyFile; f != "" && p.Engine == smctl.EngineBuiltin {
		// What is in it is for the worker alone: it is not read here.
		stamp, err := c.keyFile(f)
		u := unchecked{}
		closed := errors.As(err, &u)
		if closed {
			out = append(out, Problem{File: f, Key: "KeyFile", Message: u.Error()})
			add("keys", nil, err)
		} else {
			add("keys", []byte(stamp), nil)
		}
		if err != nil && !closed {
			out = append(out, Problem{File: f, Key: "KeyFile", Message: plain(err), Kept: keptKeys, Fatal: true})
		}
	}
	files := smctl.Files{Digest: strings.Join(digest, " ")}
	if i := slices.IndexFunc(out, func(p Problem) bool { return p.Fatal }); i >= 0 {
		files.Problem, files.Kept = out[i].String(), out[i].Kept
	}
	return out, files
}

// Problems are those of the files that a unit names, with their places.
func (c Checker) Problems(u *units.Unit) []units.Problem {
	if u == nil || !u.SubnetManager.Get().Present {
		return nil
	}
	s := u.SubnetManager.Get()
	found, _ := c.Check(smctl.PolicyOf(u))
	var out []units.Problem
	if e := &s.RoutingEngine; e.Set && s.Engine.Or(units.EngineBuiltin) == units.EngineBuiltin {
		if err := route.CheckEngines(e.V); err != nil {
			for why := range strings.Lines(err.Error()) {
				out = append(out, units.Problem{Message: strings.TrimSpace(why), Kept: keptRouting, Section: "SubnetManager", Key: "RoutingEngine",
					Pos: e.Pos.Position()})
			}
		}
	}
	for _, f := range found {
		p := units.Problem{Message: f.Message, Kept: f.Kept, Section: "SubnetManager", Key: f.Key,
			Pos: units.Position{File: f.File, Line: f.Line, Column: f.Column}}
		if f.Line == 0 {
			p.Pos = map[string]units.Place{"PartitionsFile": s.PartitionsFile.Pos, "NodeNameMap": s.NodeNameMap.Pos,
				"QoSPolicyFile": s.QoSPolicyFile.Pos, "RootGUIDFile": s.RootGUIDFile.Pos, "CNGUIDFile": s.CNGUIDFile.Pos,
				"IOGUIDFile": s.IOGUIDFile.Pos, "HopWeightsFile": s.HopWeightsFile.Pos, "GUID2LIDFile": s.GUID2LIDFile.Pos,
				"PrefixRoutesFile": s.PrefixRoutesFile.Pos, "GUIDRoutingOrderFile": s.GUIDRoutingOrderFile.Pos,
				"KeyFile": s.KeyFile.Pos, "Engine": s.Engine.Pos}[f.Key].Position()
			p.Message = fmt.Sprintf("[SubnetManager] %s=: %s: %s", f.Key, f.File, f.Message)
		}
		out = append(out, p)
	}
	return out
}

// Set are the problems of all files that units name, each once.
func (c Checker) Set(set *units.Set) []units.Problem {
	var out []units.Problem
	for _, u := range set.Units {
		for _, p := range c.Problems(u) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// problems are the mistakes that a parser lists, or the first of those that it joins.
func problems(like Problem, err error) []Problem {
	var all ib.FileErrors
	if one := (*ib.FileError)(nil); !errors.As(err, &all) && errors.As(err, &one) {
		all = ib.FileErrors{one}
	}
	if err != nil && len(all) == 0 {
		like.Message = err.Error()
		return []Problem{like}
	}
	var out []Problem
	for _, e := range all {
		like.File, like.Line, like.Column, like.Message = e.File, e.Line, e.Col, e.Msg
		out = append(out, like)
	}
	return out
}

// plain is the last part of an error's chain; the message already has the path.
func plain(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// read reads a regular file of at most most bytes that the worker can read too.
func (c Checker) read(path string, most int) ([]byte, error) {
	if err := c.visible(path); err != nil {
		return nil, err
	}
	p := filepath.Join(cmp.Or(c.Root, "/"), path)
	st, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, unchecked{""} // a folder that is closed to this process
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	if err := c.access(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil, unchecked{fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%w: more than %d bytes", smallfile.ErrTooLarge, most)
	}
	return b, err
}

// unchecked means that this process may not read a file, which implies nothing for
// the worker. It has the file's stamp.
type unchecked struct{ stamp string }

// Error returns what was not done.
func (unchecked) Error() string { return "not checked: this process may not read it" }

// hidden are the directories that ibnetsm@.service, and the unit that opensm runs in,
// do not show to the program (ProtectHome=, PrivateTmp=).
var hidden = []string{"/home", "/root", "/run/user", "/tmp", "/var/tmp"}

// visible returns why the worker's unit does not show it a path. The daemon's own unit
// hides the same folders: it is asked before they are read.
func (c Checker) visible(path string) error {
	for _, h := range hidden {
		if c.UID >= 0 && strings.HasPrefix(filepath.Clean(path), h+"/") {
			return fmt.Errorf("%s does not see files below %s; move it to /etc/ibnetworkd", c.program(), h)
		}
	}
	return nil
}

// program is what the worker is called in messages: opensm runs as root.
func (c Checker) program() string {
	if c.UID == 0 {
		return "opensm"
	}
	return "ibnetsm"
}

// access returns why the worker cannot read a file, by the modes of the file and of
// the folders that it is in. Access control lists are left to the kernel.
func (c Checker) access(path string) error {
	if c.UID < 0 {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := c.visible(real); err != nil {
		return err
	}
	for at := real; ; at = filepath.Dir(at) {
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: at, Err: err}
		}
		want, what, fix := uint32(4), "read", "chmod a+r "
		if at != real {
			want, what, fix = 1, "enter", "chmod a+x "
		}
		if st.Mode>>c.class(&st)&want == 0 && !acl(at) {
			return fmt.Errorf("%s, which runs as user %d, may not %s %s (mode %04o): %s%s", c.program(), c.UID, what, at,
				st.Mode&0o7777, fix, at)
		}
		if at == "/" {
			return nil
		}
	}
}

// class is the shift of the mode bits that apply to the worker.
func (c Checker) class(st *unix.Stat_t) uint32 {
	switch {
	case int(st.Uid) == c.UID:
		return 6
	case slices.Contains(c.GIDs, int(st.Gid)):
		return 3
	}
	return 0
}

func acl(path string) bool {
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// keyFile checks a file of keys without reading it: only its owner may, and
// its owner is the worker. The stamp changes when the file does.
func (c Checker) keyFile(path string) (stamp string, err error) {
	if err := c.visible(path); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(cmp.Or(c.Root, "/"), path), &st); err != nil {
		err := &fs.PathError{Op: "stat", Path: path, Err: err}
		if errors.Is(err, fs.ErrPermission) {
			return "", unchecked{""}
		}
		return "", err
	}
	stamp = fmt.Sprintf("%d %d %d %d %o %d", st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode, st.Uid)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return stamp, errors.New("not a regular file")
	case st.Mode&0o077 != 0:
		return stamp, fmt.Errorf("group or others may access it (mode %04o): chmod 0600 %s", st.Mode&0o7777, path)
	case c.UID >= 0 && int(st.Uid) != c.UID:
		return stamp, fmt.Errorf("it belongs to user %d, not to %s, which runs the subnet manager: chown %s %s", st.Uid, User, User, path)
	}
	return stamp, c.access(path)
}
