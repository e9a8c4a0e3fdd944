package lab

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab/build"
)

// machine is everything of a guest that is made before it boots.
type machine struct {
	cfg    Config
	kernel *build.Kernel
	module string // swib.ko
	rootfs string // "" for Bare
	bins   map[string]string
	agent  string // static program that is /init
}

// prepare builds what the guest needs, or finds it in the cache.
func prepare(ctx context.Context, out io.Writer, c Config) (*machine, error) {
	b, err := build.New(out)
	if err != nil {
		return nil, err
	}
	m := &machine{cfg: c, bins: map[string]string{}}
	switch {
	case c.Machine == QEMU:
		m.kernel, err = b.DebianKernel(ctx, c.Series)
	case Sanitizing():
		m.kernel, err = b.Kernel(ctx, build.Sanitize)
	case c.Small && !b.Has(ctx, build.UML):
		m.kernel, err = b.Kernel(ctx, build.IPoIB)
	default:
		m.kernel, err = b.Kernel(ctx, build.UML)
	}
	if err != nil {
		return nil, err
	}
	if m.module, err = b.Module(ctx, m.kernel, "swib", SwibSource()); err != nil {
		return nil, err
	}
	if c.Userland != Bare {
		if m.rootfs, err = b.Rootfs(ctx); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(m.checkUnits(), m.checkFiles()); err != nil {
		return nil, err
	}
	for _, bin := range append([]string{managerPkg}, c.Bins...) {
		file := bin
		if !filepath.IsAbs(bin) {
			if file, err = programs.build(ctx, b, bin); err != nil {
				return nil, err
			}
		}
		m.bins[filepath.Base(file)] = file
	}
	return m, nil
}

// checkUnits makes sure that the units to start at boot exist: systemd says nothing
// of one that does not.
func (m *machine) checkUnits() error {
next:
	for _, u := range m.cfg.Units {
		file := u
		if name, rest, ok := strings.Cut(u, "@"); ok {
			file = name + "@" + filepath.Ext(rest)
		}
		for _, dir := range []string{"/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"} {
			for _, f := range []string{u, file} {
				if _, ok := m.cfg.Files[filepath.Join(dir, f)]; ok {
					continue next
				}
				if _, err := os.Lstat(filepath.Join(m.rootfs, dir, f)); err == nil {
					continue next
				}
			}
		}
		return fmt.Errorf("unit %s: neither the userland nor Files have it", u)
	}
	return nil
}

// checkFiles makes sure that no file is to be where the userland has a folder, and none
// below one of its files.
func (m *machine) checkFiles() error {
	if m.rootfs == "" {
		return nil
	}
	root, err := os.OpenRoot(m.rootfs) // links in it are the guest's, not the host's
	if err != nil {
		return err
	}
	defer root.Close()
	for name := range m.cfg.Files {
		switch st, err := root.Stat(strings.TrimPrefix(name, "/")); {
		case err == nil && st.IsDir():
			return fmt.Errorf("file %q: that is a folder of the userland; want the name of a file in it", name)
		case errors.Is(err, unix.ENOTDIR):
			return fmt.Errorf("file %q: a part of its path is a file of the userland", name)
		}
	}
	return nil
}

// managerPkg is the subnet manager that every guest can start, see G.SM.
const managerPkg = "ibnetworkd/cmd/ibnetsm"

// programs are built once by a test process: even where nothing is left to do,
// the go command takes half a second to find that out.
var programs = builtPrograms{file: map[string]string{}}

type builtPrograms struct {
	mu   sync.Mutex
	file map[string]string
}

func (p *builtPrograms) build(ctx context.Context, b *build.Builder, pkg string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.file[pkg]; ok {
		return f, nil
	}
	f, err := b.Program(ctx, startDir, pkg)
	if err != nil {
		return "", err
	}
	p.file[pkg] = f
	return f, nil
}

// testBinary returns a static executable of the running test.  That is the test
// itself unless it was built with cgo (as -race does): the guest has no C
// library then, and the race detector does not run under UML.
var testBinary = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil || isStatic(self) {
		return self, err
	}
	b, err := build.New(io.Discard)
	if err != nil {
		return "", err
	}
	return b.TestProgram(context.Background(), startDir)
})

func isStatic(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// linkFile makes the file src appear as dst, without copying it where possible.
func linkFile(src, dst string) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	if os.Link(src, dst) == nil {
		return nil
	}
	text, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, text, 0o755)
}

// boot makes the folder of the guest and starts its machine.  con is the
// terminal of a person, or nil.
func (m *machine) boot(j job, name string, con *os.File) (*Guest, error) {
	logs := os.Getenv(logsVar)
	if logs == "" {
		logs = filepath.Join(os.TempDir(), "ibnetlab")
	}
	dir, err := os.MkdirTemp("", "ibnetlab-")
	if err != nil {
		return nil, err
	}
	g := &Guest{Dir: dir, cfg: m.cfg, done: make(chan struct{}), kept: filepath.Join(logs, fileName(name)+"-"+time.Now().Format("150405.000"))}
	ok := false
	defer func() {
		if !ok {
			os.RemoveAll(dir)
		}
	}()
	// The guest may run services as other users that must get through.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	for _, d := range []string{"bin", "out", "files"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "out"), 0o777); err != nil {
		return nil, err
	}
	for n, file := range m.bins {
		if err := linkFile(file, filepath.Join(dir, "bin", n)); err != nil {
			return nil, err
		}
	}
	if err := linkFile(m.agent, filepath.Join(dir, "bin/lab-agent")); err != nil {
		return nil, err
	}
	if err := linkFile(m.module, filepath.Join(dir, "swib.ko")); err != nil {
		return nil, err
	}
	for n, text := range m.cfg.Files {
		to := filepath.Join(dir, "files", n)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	j.Root = m.rootfs
	j.Net = m.cfg.netPath
	for _, w := range m.cfg.wires {
		j.Wires = append(j.Wires, w.port)
	}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "IBNET_") && !strings.HasPrefix(e, "IBNET_CACHE=") {
			j.Env = append(j.Env, e)
		}
	}
	text, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "job.json"), text, 0o644); err != nil {
		return nil, err
	}
	initrd := filepath.Join(dir, "initramfs")
	if err := m.initramfs(initrd); err != nil {
		return nil, err
	}
	command := m.umlCommand
	if m.cfg.Machine == QEMU {
		command = m.qemuCommand
	}
	if err := g.run(con, command(dir, initrd, con != nil)); err != nil {
		return nil, err
	}
	ok = true
	return g, nil
}

// initramfs returns the archive with the agent as /init.
func (m *machine) initramfs(file string) error {
	text, err := os.ReadFile(m.agent)
	if err != nil {
		return err
	}
	var head bytes.Buffer
	c := &cpioWriter{w: &head}
	for _, d := range []string{"/dev", "/proc", "/sys", "/lab", "/run", "/tmp", "/etc", "/root", "/var", "/modules"} {
		c.dir(d)
	}
	c.char("/dev/console", 5, 1)
	c.char("/dev/null", 1, 3)
	for i, mod := range m.initModules() {
		data, err := os.ReadFile(mod)
		if err == nil && strings.HasSuffix(mod, ".xz") {
			mod = strings.TrimSuffix(mod, ".xz")
			data, err = exec.Command("xz", "-dc", mod+".xz").Output()
		}
		if err != nil {
			return err
		}
		c.file(fmt.Sprintf("/modules/%03d-%s", i, filepath.Base(mod)), 0o644, data)
	}
	c.file("/init", 0o755, text)
	if err := c.close(); err != nil {
		return err
	}
	return os.WriteFile(file, head.Bytes(), 0o644)
}

// umlCommand returns the command of a User Mode Linux guest.
func (m *machine) umlCommand(dir, initrd string, quiet bool) *exec.Cmd {
	args := []string{
		fmt.Sprintf("mem=%dM", m.cfg.Memory), "initrd=" + initrd, "ibnetlab=hostfs:" + dir,
		"umid=guest", "uml_dir=" + dir, "con=null", "con0=fd:0,fd:1",
		"panic=-1", "loglevel=5", "rdinit=/init",
	}
	if quiet {
		args = append(args, "quiet", "loglevel=3")
	}
	if m.cfg.Userland == Systemd {
		args = append(args, systemdArgs...)
	}
	if m.cfg.TimeTravel {
		args = append(args, "time-travel=inf-cpu")
	}
	cmd := exec.Command(m.kernel.Image)
	for i, w := range m.cfg.wires {
		cmd.ExtraFiles = append(cmd.ExtraFiles, w.file)
		args = append(args, fmt.Sprintf("vec%d:transport=fd,fd=%d,depth=128,mtu=%d", i, 3+i, wireMTU))
	}
	args = append(args, m.queueArgs()...)
	args = append(args, strings.Fields(m.cfg.Append)...)
	cmd.Args = append(cmd.Args, args...)
	return cmd
}
