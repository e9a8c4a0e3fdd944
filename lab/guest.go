package lab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roleVar is the variable with the role of a re-executed test binary.
const roleVar = "IBNETLAB_ROLE"

// init makes any program that imports this package the first process of a
// guest.  It does nothing anywhere else: the kernel of a guest is the only one
// that starts process 1 as "/init" with ibnetlab on its command line.
func init() {
	switch {
	case os.Getpid() == 1 && os.Args[0] == "/init":
		pid1()
	case os.Getenv(roleVar) == "watch":
		watcher()
	case os.Getenv(roleVar) == "agent":
		agent()
	case os.Getenv(roleVar) == "netns":
		netnsExec()
	}
}

// InGuest reports whether this process runs in a guest of the lab.
func InGuest() bool { return os.Getenv(roleVar) == "test" }

// fatal ends the guest with a message that the host shows.
func fatal(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	fmt.Println("lab:", msg)
	_ = os.WriteFile(shareDir+"/out/error", []byte(msg+"\n"), 0o644)
	powerOff()
}

// must ends the guest if there is an error.
func must(err error) {
	if err != nil {
		fatal("%v", err)
	}
}

func powerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func mount(src, dir, typ, opts string, flags uintptr) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(src, dir, typ, flags, opts); err != nil && err != unix.EBUSY {
		return fmt.Errorf("mount %s on %s: %w", typ, dir, err)
	}
	return nil
}

func (j *job) mountHost(what, path, dir string, flags uintptr) error {
	if j.Export == "9p" {
		cache := "none"
		if flags&unix.MS_RDONLY != 0 {
			cache = "loose"
		}
		return mount(what, dir, "9p", "trans=virtio,version=9p2000.L,msize=262144,cache="+cache, flags)
	}
	return mount("none", dir, "hostfs", path, flags)
}

func pid1() {
	must(mount("proc", "/proc", "proc", "", 0))
	cmdline, err := os.ReadFile("/proc/cmdline")
	must(err)
	share, export := "", ""
	for f := range strings.FieldsSeq(string(cmdline)) {
		if v, ok := strings.CutPrefix(f, "ibnetlab="); ok {
			export, share, _ = strings.Cut(v, ":")
		}
	}
	if export == "" {
		fatal("this kernel was not started by the lab")
	}
	_ = mount("sysfs", "/sys", "sysfs", "", 0)
	_ = mount("dev", "/dev", "devtmpfs", "", 0)
	must(loadInitModules())
	j := &job{Export: export}
	must(j.mountHost("lab", share, shareDir, 0))
	j, err = readJob()
	must(err)
	j.Export = export

	if j.Net != "" {
		must(j.mountHost("net", j.Net, netDir, 0))
	}
	if j.Userland != Bare {
		must(j.switchRoot())
	}
	must(placeFiles(shareDir+"/files", "/"))
	if j.Userland == Systemd {
		must(j.execSystemd())
	}
	must(mountAll())
	name := []byte("lab")
	if own, err := os.ReadFile(shareDir + "/files/etc/hostname"); err == nil {
		name = bytes.TrimSpace(own)
	}
	_ = unix.Sethostname(name)
	j.run()
}

// loadInitModules loads the modules that the host put into the initramfs of a
// modular kernel, in name order.
func loadInitModules() error {
	names, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := loadModule(n, ""); err != nil {
			return err
		}
	}
	return nil
}

func loadModule(file, params string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), params, 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s %s: %w", filepath.Base(file), params, err)
	}
	return nil
}

// switchRoot makes the Debian userland the root: the host's folder below, never
// written to, and memory on top.
func (j *job) switchRoot() error {
	const lower, upper, root = "/lower", "/upper", "/newroot"
	if err := j.mountHost("rootfs", j.Root, lower, unix.MS_RDONLY); err != nil {
		return err
	}
	if err := mount("upper", upper, "tmpfs", "mode=755", 0); err != nil {
		return err
	}
	for _, d := range []string{"/u", "/w"} {
		if err := os.Mkdir(upper+d, 0o755); err != nil {
			return err
		}
	}
	opts := "lowerdir=" + lower + ",upperdir=" + upper + "/u,workdir=" + upper + "/w"
	if err := mount("overlay", root, "overlay", opts, 0); err != nil {
		return err
	}
	moved := []string{"/proc", "/sys", "/dev", shareDir}
	if j.Net != "" {
		moved = append(moved, netDir)
	}
	for _, d := range moved {
		if err := os.MkdirAll(root+d, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(d, root+d, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", d, err)
		}
	}
	if j.Export == "9p" {
		if err := j.mountHost("modules", "", root+"/lib/modules", unix.MS_RDONLY); err != nil {
			return err
		}
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	return unix.Chdir("/")
}

// mountAll mounts what systemd would have mounted.
func mountAll() error {
	for _, m := range []struct{ typ, dir, opts string }{
		{"tmpfs", "/run", "mode=755"}, {"tmpfs", "/tmp", "mode=1777"},
		{"devpts", "/dev/pts", "mode=620,ptmxmode=666"}, {"tmpfs", "/dev/shm", "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", ""}, {"debugfs", "/sys/kernel/debug", ""}, {"configfs", "/sys/kernel/config", ""},
	} {
		err := mount(m.typ, m.dir, m.typ, m.opts, 0)
		// A kernel without it has no such type, or no such folder in sysfs.
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	for _, d := range []string{"/run/netns", "/run/lock", "/var/log", "/etc", "/root"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if _, err := os.Lstat("/var/run"); err != nil {
		_ = os.Symlink("/run", "/var/run")
	}
	return nil
}

// placeFiles copies the tree src over dst.
func placeFiles(src, dst string) error {
	err := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if bytes.HasPrefix(text, []byte("#!")) {
			mode = 0o755
		}
		return os.WriteFile(to, text, mode)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// execSystemd replaces process 1 by systemd, with the test as one of its
// services.
func (j *job) execSystemd() error {
	if err := mount("run", "/run", "tmpfs", "mode=755", 0); err != nil {
		return err
	}
	if err := maskUseless(); err != nil {
		return err
	}
	tty := ""
	if j.Shell {
		tty = "StandardInput=tty-force\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/console\n"
	}
	unit := `[Unit]
Description=The scenario of this guest
After=basic.target dbus.service systemd-udevd.service systemd-udev-settle.service
[Service]
Type=exec
Environment=` + roleVar + `=agent
Environment=HOME=/root TERM=` + os.Getenv("TERM") + `
ExecStart=` + shareDir + `/bin/lab-agent
KillMode=process
TimeoutStopSec=1
` + tty
	const dir = unitPlace
	wants := dir + "/multi-user.target.wants"
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/lab.service", []byte(unit), 0o644); err != nil {
		return err
	}
	for _, u := range append([]string{"lab.service"}, j.Units...) {
		target := dir + "/" + u
		if _, err := os.Stat(target); err != nil {
			target = "/lib/systemd/system/" + u
		}
		_ = os.Remove(wants + "/" + u)
		if err := os.Symlink(target, wants+"/"+u); err != nil {
			return err
		}
	}
	if j.Shell && j.Installed {
		if out, err := exec.Command("/bin/systemctl", "--quiet", "enable", enabledUnit).CombinedOutput(); err != nil {
			return fmt.Errorf("systemctl enable %s: %w\n%s", enabledUnit, err, out)
		}
	}
	// No container variable: it would make systemd leave out udev.
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return unix.Exec("/lib/systemd/systemd", []string{"/lib/systemd/systemd", "--system"}, env)
}

// maskUseless keeps systemd from running what does nothing in a guest without disks, users
// and terminals: a quarter of the processor time of a boot, and generators run at each
// daemon-reload too.
func maskUseless() error {
	mask := func(dir, before, names, after string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, n := range strings.Fields(names) {
			if err := os.Symlink("/dev/null", filepath.Join(dir, before+n+after)); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(
		mask("/run/systemd/system-generators", "systemd-", "cryptsetup debug fstab getty gpt-auto hibernate-resume integritysetup "+
			"rc-local run system-update sysv veritysetup", "-generator"),
		mask("/run/systemd/system", "systemd-", "ask-password-console.path ask-password-wall.path initctl.socket random-seed.service "+
			"remount-fs.service sysusers.service tmpfiles-clean.timer update-utmp-runlevel.service update-utmp.service", ""),
	)
}

// agent is lab.service under systemd.
func agent() {
	j, err := readJob()
	must(err)
	_ = mount("debugfs", "/sys/kernel/debug", "debugfs", "", 0)
	_ = mount("configfs", "/sys/kernel/config", "configfs", "", 0)
	_ = os.MkdirAll("/run/netns", 0o755)
	j.run()
}

// run starts the test binary, collects its orphans, and ends the guest with it.
func (j *job) run() {
	out, err := os.OpenFile(shareDir+"/out/stdout", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(err)
	env := append([]string{
		"PATH=" + shareDir + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "TERM=" + cmp.Or(j.getenv("TERM"), "linux"),
	}, j.Env...)
	up, _ := os.ReadFile("/proc/uptime")
	_ = os.WriteFile(shareDir+"/out/boot", up, 0o644)

	must(errors.Join(j.startStalls(), j.startJitter()))
	var code int
	if j.Shell {
		code = j.shell(env)
	} else {
		cmd := exec.Command("/proc/self/exe", j.Args...)
		cmd.Args[0] = "lab-test"
		cmd.Env = append(env, roleVar+"=test")
		cmd.Dir = "/"
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			fatal("start of the test: %v", err)
		}
		code = reap(cmd.Process.Pid)
	}
	out.Close()
	leaks := findLeaks()
	if log, err := klog(); err == nil {
		log = append(log, leaks...)
		_ = os.WriteFile(shareDir+"/out/dmesg", log, 0o644)
	}
	_ = os.WriteFile(shareDir+"/out/exit", []byte(strconv.Itoa(code)), 0o644)
	powerOff()
}

// getenv is a variable of the job's environment, "" if it is not there; the last counts.
func (j *job) getenv(name string) string {
	for _, e := range slices.Backward(j.Env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// reap waits for pid and, as the first process must, for everybody's orphans.
func reap(pid int) int {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 255
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal())
		case got == pid:
			return ws.ExitStatus()
		}
	}
}

// shell gives a prompt on the console and returns when it ends.
func (j *job) shell(env []string) int {
	tty, err := os.OpenFile("/dev/console", os.O_RDWR, 0)
	must(err)
	// A console cannot be a controlling terminal, the device behind it can.
	behind := "/dev/tty0"
	if j.Machine == QEMU {
		behind = "/dev/ttyS0"
	}
	if t, err := os.OpenFile(behind, os.O_RDWR, 0); err == nil {
		tty.Close()
		tty = t
	}
	if j.HCAs >= 0 {
		must(loadSwib(j.Config, j.Wires))
	}
	fmt.Fprintf(tty, "%s\n", j.banner())
	cmd := exec.Command("/bin/bash", "--rcfile", shellRC, "-i")
	cmd.Env = env
	cmd.Dir = "/root"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	rc := rcText + fmt.Sprintf(rcTime, shareDir+"/out/prompt", j.Begun.UnixMilli()/10)
	must(os.WriteFile(shellRC, []byte(rc), 0o644))
	must(cmd.Start())
	return reap(cmd.Process.Pid)
}

const shellRC = "/run/lab.bashrc"

const rcText = `PS1='\h:\w# '
[ -n "$COLUMNS" ] && [ -n "$LINES" ] && stty cols "$COLUMNS" rows "$LINES"
ctl() { if [ $# = 0 ]; then cat /sys/kernel/debug/swib/ctl; else echo "$*" > /sys/kernel/debug/swib/ctl; fi; }
sm() {
	opensm -g 0x$(cut -d: -f5-8 /sys/class/infiniband/${1:-swib0}/ports/${2:-1}/gids/0 | tr -d :) -f /tmp/opensm.log \
		> /dev/null 2>&1 < /dev/null &
}
[ -r /usr/share/bash-completion/bash_completion ] && . /usr/share/bash-completion/bash_completion
`

// rcTime prints how long the prompt took, builds aside.  The start is by the host's clock, and
// so is the time of a file that is new in a folder of the host.
const rcTime = `: > %[1]s
took=$(stat -c %%.2Y %[1]s); took=$((${took/./} - %[2]d))
printf '  The prompt was there %%d.%%02d s after the start.\n' $((took / 100)) $((took %% 100))
unset took
`

// banner returns what a person can do here.
func (j *job) banner() string {
	devs, _ := filepath.Glob("/sys/class/infiniband/*")
	installed := ""
	if j.Installed {
		installed = "\n  ibnetctl         status, diagnose ...; ibnetworkd is enabled, as by its package, and reads /etc/systemd/network"
	}
	return fmt.Sprintf(`A guest of the lab: %d adapters. Nothing here outlives it; exit or Ctrl-D ends it.
  sm               start opensm (sm DEVICE PORT for another port)    ibstat, ibnetdiscover, saquery ...
  ctl              the fabric;  ctl link h1/1 down, ctl add 5, ctl fault all drop attr=0x15 percent=20 ...
  %s/bin         programs of this project%s`, len(devs), shareDir, installed)
}

const kmemleak = "/sys/kernel/debug/kmemleak"

// findLeaks ends everything in the guest, unless it is systemd's, unloads the fabric,
// and returns what the kernel's leak detector finds and whether lockdep was on until then;
// nothing on a kernel without the checkers.
func findLeaks() []byte {
	if _, err := os.Stat(kmemleak); err != nil {
		return nil
	}
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL)
		for err := error(nil); err != unix.ECHILD; {
			_, err = unix.Wait4(-1, nil, 0, nil)
		}
	}
	if err := unix.DeleteModule("swib", 0); err != nil && err != unix.ENOENT {
		return fmt.Appendf(nil, "WARNING: swib cannot be unloaded: %v\n", err)
	}
	// Memory younger than five seconds is not reported, and what a pointer on
	// a stack happened to hide in one scan shows in the next.
	time.Sleep(6 * time.Second)
	for range 2 {
		_ = os.WriteFile(kmemleak, []byte("scan"), 0o644)
	}
	report, _ := os.ReadFile(kmemleak)
	return append(lockdepOff(), report...)
}

// lockdepOff is a report of its own if the checker of locks no longer is at work: the kernel
// switches it off at its first report, and what came after that was not checked.
func lockdepOff() []byte {
	stats, _ := os.ReadFile("/proc/lockdep_stats")
	if regexp.MustCompile(`debug_locks: +1\n`).Match(stats) {
		return nil
	}
	return []byte("WARNING: lockdep had switched itself off before the end\n")
}

// klog returns the kernel's log.
func klog() ([]byte, error) {
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	n, err = unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
