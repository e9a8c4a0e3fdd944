package build

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed ipoib.config
var ipoibConfig string

//go:embed uml.config
var umlConfig string

//go:embed sanitize.config
var sanitizeConfig string

// Series is the Debian kernel series that QEMU boots if none is named.
const Series = "6.1"

// AllSeries are the Debian kernel series that there are for QEMU.
var AllSeries = []string{Series, "6.12"}

// sourceSeries is the Debian kernel series of the UML kernels. Bookworm's security updates and
// trixie have its source, and as UML it forks and executes programs in little more than half
// the time of 6.1.
const sourceSeries = "6.12"

// Variant names a kernel that Builder.Kernel can make.
type Variant struct {
	Name    string
	options string // .config lines on top of allnoconfig
	objects int    // size of the build, for the progress line only
}

var (
	// UML is the User Mode Linux kernel of nearly all tests.
	UML = Variant{"uml", ipoibConfig + umlConfig, 1104}
	// IPoIB is as much of UML as IPoIB needs, built in much less time.
	IPoIB = Variant{"uml-ipoib", ipoibConfig, 795}
	// Sanitize is UML with KASAN, lockdep, kmemleak and the other checkers.
	Sanitize = Variant{"uml-sanitize", ipoibConfig + umlConfig + sanitizeConfig, 1147}
)

// edits are the differences of the UML kernels from Debian's source. Each old text
// occurs once in its file.
var edits = []struct{ file, old, new string }{
	// The lab's adapters are on the platform bus, and rtnetlink lists the virtual functions of a
	// link only where the bus of its device counts them.
	{"include/linux/platform_device.h", "extern const struct bus_type platform_bus_type;", "extern struct bus_type platform_bus_type;"},
	{"drivers/base/platform.c", "const struct bus_type platform_bus_type = {", "struct bus_type platform_bus_type = {"},
	// ib_ipoib has a work that destroys the queue pairs of ended connections which other hosts
	// had opened, and does not wait for it when an interface stops: a driver that is unbound in
	// that moment frees their completion queue first ("Destroy of kernel CQ shouldn't fail",
	// then use after free). Debian's own kernels, 6.1 and 6.12, have that bug.
	{"drivers/infiniband/ulp/ipoib/ipoib_cm.c", "\tipoib_cm_free_rx_reap_list(dev);\n",
		"\tcancel_work_sync(&priv->cm.rx_reap_task);\n\tipoib_cm_free_rx_reap_list(dev);\n"},
	// The same of the connections that this host had opened, when an interface is deleted: what
	// flushes the neighbors queues the work, and the queue is drained after the destruction. Links
	// whose driver has the queues (enhanced IPoIB) have no such work.
	{"drivers/infiniband/ulp/ipoib/ipoib_main.c", "\tipoib_transport_dev_cleanup(dev);\n\n\tipoib_napi_del(dev);\n",
		"\tflush_work(&priv->cm.reap_task);\n\tipoib_transport_dev_cleanup(dev);\n\n\tipoib_napi_del(dev);\n"},
	// ib_ipoib has a third work that nothing waits for in time: it polls for sent packets where an
	// interface stops with some under way, and an interface that is deleted in that moment is
	// freed under it ("Segfault with no mm" in ipoib_napi_schedule_work). Debian's own 6.12 has
	// that bug, too.
	{"drivers/infiniband/ulp/ipoib/ipoib_verbs.c", "\tib_destroy_cq(priv->send_cq);\n\tib_destroy_cq(priv->recv_cq);\n",
		"\tib_destroy_cq(priv->send_cq);\n\tib_destroy_cq(priv->recv_cq);\n\tcancel_work_sync(&priv->reschedule_napi_work);\n"},
	// UML's network driver, the wires' end in the kernel, resets its statistics without keeping softirqs
	// off, which take the same locks. Lockdep switches itself off at its first report, and this one came with
	// the first wire: nothing that a fabric of several kernels did after that was checked.
	{"arch/um/drivers/vector_kern.c", "\t/* We reuse the existing queue locks for stats */\n",
		"\t/* We reuse the existing queue locks for stats */\n\tlocal_bh_disable();\n"},
	{"arch/um/drivers/vector_kern.c", "\tvp->estats.tx_queue_running_average = 0;\n\tspin_unlock(&vp->tx_queue->head_lock);\n",
		"\tvp->estats.tx_queue_running_average = 0;\n\tspin_unlock(&vp->tx_queue->head_lock);\n\tlocal_bh_enable();\n"},
	// UML writes the register state (xstate) of a process back each time that it goes on, for
	// which the host allocates and maps memory. After nearly every system call the process has
	// that very state: what was last read or written is kept here and compared. The handler of
	// page faults begins with an empty state, a new process may have the number of an old one;
	// what else UML runs in a process uses no such registers (-mno-sse).
	// ptrace takes the register state of a guest's process only as a whole, and this UML has
	// a buffer for AVX-512: on a processor that has more (AMX), init ends at its first
	// instruction ("ptrace set fp regs failed"). The rest is zeros: no process of a guest can
	// request AMX from the host. Linux 6.13 and newer query the host for the size.
	{"arch/x86/um/os-Linux/registers.c", "static int have_xstate_support;\n", `static int have_xstate_support;
static unsigned long whole_fp[65536 / sizeof(unsigned long)];
static size_t whole_fp_size; /* bytes, as the host says */

/* The registers that a process of the host has, as it was last asked or told. */
static struct { int pid; size_t len; unsigned long regs[FP_SIZE]; } held_fp[64];

static void hold_fp(int pid, unsigned long *fp_regs, size_t len)
{
	int i = pid % 64;

	if (len > sizeof(held_fp[i].regs))
		len = sizeof(held_fp[i].regs);
	held_fp[i].pid = pid;
	held_fp[i].len = len;
	memcpy(held_fp[i].regs, fp_regs, len);
}

void forget_fp_registers(int pid)
{
	if (held_fp[pid % 64].pid == pid)
		held_fp[pid % 64].pid = 0;
}
`},
	{"arch/x86/um/os-Linux/registers.c", "\t\tif (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) < 0)\n\t\t\treturn -errno;\n",
		"\t\tif (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) < 0)\n\t\t\treturn -errno;\n\t\thold_fp(pid, fp_regs, iov.iov_len);\n"},
	{"arch/x86/um/os-Linux/registers.c", "\t\tif (ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov) < 0)\n\t\t\treturn -errno;\n", `		if (held_fp[pid % 64].pid == pid && !memcmp(held_fp[pid % 64].regs, fp_regs, held_fp[pid % 64].len))
			return 0;
		forget_fp_registers(pid);
		if (ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov) < 0)
			return -errno;
		hold_fp(pid, fp_regs, iov.iov_len);
`},
	{"arch/um/include/shared/registers.h", "extern int put_fp_registers(",
		"extern void forget_fp_registers(int pid);\nextern int put_fp_registers("},
	{"arch/um/os-Linux/skas/process.c", "\terr = ptrace(PTRACE_CONT, pid, 0, SIGSEGV);\n",
		"\tforget_fp_registers(pid);\n\terr = ptrace(PTRACE_CONT, pid, 0, SIGSEGV);\n"},
	{"arch/um/os-Linux/skas/process.c", "\tdo {\n\t\tCATCH_EINTR(n = waitpid(pid, &status, WUNTRACED | __WALL));\n",
		"\tforget_fp_registers(pid);\n\tdo {\n\t\tCATCH_EINTR(n = waitpid(pid, &status, WUNTRACED | __WALL));\n"},
	{"arch/x86/um/os-Linux/registers.c", "\t\tif (ptrace(PTRACE_SETREGSET, ", `		if (whole_fp_size > iov.iov_len) {
			memcpy(whole_fp, fp_regs, iov.iov_len);
			iov.iov_base = whole_fp;
			iov.iov_len = whole_fp_size;
		}
		if (ptrace(PTRACE_SETREGSET, `},
	{"arch/x86/um/os-Linux/registers.c", "#include <stdlib.h>\n", "#include <stdlib.h>\n#include <string.h>\n"},
	{"arch/x86/um/os-Linux/registers.c", `	void * fp_regs;
	struct iovec iov;

	fp_regs = malloc(FP_SIZE * sizeof(unsigned long));
	if(fp_regs == NULL)
		return;

	iov.iov_base = fp_regs;
	iov.iov_len = FP_SIZE * sizeof(unsigned long);
	if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) == 0)
		have_xstate_support = 1;

	free(fp_regs);
`, `	struct iovec iov = { whole_fp, sizeof(whole_fp) };

	if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov) == 0) {
		have_xstate_support = 1;
		whole_fp_size = iov.iov_len;
		memset((char *)whole_fp, 0, sizeof(whole_fp));
	}
`},
}

// edited ends the name of the folder of a source with these edits.
var edited = "-" + key("kernel source", fmt.Sprint(edits))

// Kernel is a bootable kernel with what is needed to build modules for it.
type Kernel struct {
	Image   string   // the program (UML) or image (QEMU) to boot
	Release string   // as uname -r prints it
	Tree    string   // build folder for modules
	Source  string   // source folder for modules
	Arch    string   // ARCH= of the build
	Modules string   // root folder with lib/modules/Release, "" when all is built in
	Boot    []string // modules to load at boot, dependencies first
	id      string   // key of this kernel
	make    []string // arguments of make that choose this kernel
}

// unpacked finds the kernel source, edited, in the cache; "" if there is none.
func (b *Builder) unpacked() (dir, version string) {
	m, _ := filepath.Glob(filepath.Join(b.Cache, "src", "linux-"+sourceSeries+".*"+edited))
	slices.Sort(m)
	for i := len(m) - 1; i >= 0; i-- {
		if used(m[i]) {
			return m[i], strings.TrimSuffix(strings.TrimPrefix(filepath.Base(m[i]), "linux-"), edited)
		}
	}
	return "", ""
}

// source unpacks Debian's kernel source and returns its folder and version.  A
// source that is in the cache is used without asking the network.
func (b *Builder) source(ctx context.Context) (dir, version string, err error) {
	if dir, version = b.unpacked(); dir != "" {
		return dir, version, nil
	}
	unlock, err := b.lock(ctx, "kernel source", "source")
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if dir, version = b.unpacked(); dir != "" {
		return dir, version, nil
	}
	if err := b.need(ctx, map[string]string{"dpkg-deb": "dpkg", "xz": "xz-utils", "tar": "tar"}); err != nil {
		return "", "", err
	}
	pkg := "linux-source-" + sourceSeries
	deb, err := b.download(ctx, filepath.Join(b.Cache, "debs"), pkg)
	if err != nil {
		return "", "", err
	}
	version, err = output(ctx, "dpkg-deb", "-f", deb, "Version")
	if err != nil {
		return "", "", err
	}
	dir = filepath.Join(b.Cache, "src", "linux-"+version+edited)
	err = b.once(ctx, "kernel source", dir, func(tmp string) error {
		b.say("unpacking %s %s", pkg, version)
		args := []string{"-o", "pipefail", "-c", `deb=$1 src=$2 to=$3; shift 3
dpkg-deb --fsys-tarfile "$deb" | tar -xOf - "./usr/src/$src.tar.xz" | xz -dc -T0 | tar -C "$to" --strip-components=1 "$@" -xf -`, "unpack", deb, pkg, tmp}
		for _, d := range unneeded {
			args = append(args, "--exclude=linux-source-*/"+d+"/*.[chS]", "--exclude=linux-source-*/"+d+"/*.dts*",
				"--exclude=linux-source-*/"+d+"/*.rst", "--exclude=linux-source-*/"+d+"/*.svg", "--exclude=linux-source-*/"+d+"/*.json")
		}
		if err := b.run(ctx, step{what: "unpacking"}, "bash", args...); err != nil {
			return err
		}
		for _, e := range edits {
			if err := edit(filepath.Join(tmp, e.file), e.old, e.new); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", "", err
	}
	os.Remove(deb) // 150 MB that nothing needs any more
	return dir, version, nil
}

// unneeded are folders of which no configuration here builds anything: two thirds
// of the source. Their Kconfig files and makefiles stay.
var unneeded = []string{
	"Documentation", "sound", "drivers/gpu", "drivers/media", "drivers/staging", "drivers/scsi",
	"drivers/iio", "drivers/net/ethernet", "drivers/net/wireless", "drivers/infiniband/hw", "tools/perf", "tools/testing",
	"arch/arm", "arch/arm64", "arch/powerpc", "arch/mips", "arch/m68k", "arch/s390", "arch/sparc", "arch/sh", "arch/riscv",
}

// edit replaces a text that occurs once in a file.
func edit(file, old, new string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), old); n != 1 {
		return fmt.Errorf("%s has %d times what is to be edited: %q", file, n, old)
	}
	return os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o644)
}

// compiler returns a line that identifies the C compiler.
func compiler(ctx context.Context) (string, error) {
	return output(ctx, "gcc", "-dumpfullversion", "-dumpmachine")
}

var buildTools = map[string]string{
	"gcc": "build-essential", "make": "build-essential", "bc": "bc", "bison": "bison",
	"flex": "flex", "xz": "xz-utils", "perl": "perl", "/usr/include/stdio.h": "libc6-dev",
}

// place is the folder of a kernel in the cache, and the key that names it.
func (b *Builder) place(ctx context.Context, v Variant, version string) (dir, id string, err error) {
	cc, err := compiler(ctx)
	if err != nil {
		return "", "", err
	}
	id = key("uml kernel", configLines(v.options), version, cc, edited)
	return filepath.Join(b.Cache, "kernel", v.Name+"-"+id), id, nil
}

// Has reports whether Kernel would find the kernel in the cache.
func (b *Builder) Has(ctx context.Context, v Variant) bool {
	_, version := b.unpacked()
	dir, _, err := b.place(ctx, v, version)
	if err != nil {
		return false // without a compiler there is no kernel yet
	}
	return used(dir)
}

// Kernel makes a UML kernel, minutes the first time and nothing after that.
func (b *Builder) Kernel(ctx context.Context, v Variant) (*Kernel, error) {
	if err := b.need(ctx, buildTools); err != nil {
		return nil, err
	}
	src, version, err := b.source(ctx)
	if err != nil {
		return nil, err
	}
	dir, id, err := b.place(ctx, v, version)
	if err != nil {
		return nil, err
	}
	err = b.once(ctx, v.Name+" kernel", dir, func(tmp string) error { return b.buildUML(ctx, v, src, tmp) })
	if err != nil {
		return nil, err
	}
	rel, err := os.ReadFile(filepath.Join(dir, "include/config/kernel.release"))
	if err != nil {
		return nil, fmt.Errorf("%s kernel: %w", v.Name, err)
	}
	return &Kernel{
		Image: filepath.Join(dir, "linux"), Release: strings.TrimSpace(string(rel)),
		Tree: dir, Source: src, Arch: "um", id: id,
		make: []string{"-C", src, "ARCH=um", "O=" + dir},
	}, nil
}

// configLines returns the option lines of a fragment: comments do not change
// what is built and are not part of the key.
func configLines(text string) string {
	var keep []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "CONFIG_") {
			keep = append(keep, l)
		}
	}
	return strings.Join(keep, "\n")
}

func (b *Builder) buildUML(ctx context.Context, v Variant, src, tmp string) error {
	log := filepath.Join(b.Cache, v.Name+"-build.log")
	os.Remove(log)
	frag := filepath.Join(tmp, "lab.config")
	if err := os.WriteFile(frag, []byte(configLines(v.options)+"\n"), 0o644); err != nil {
		return err
	}
	b.say("%s kernel: configuring (once; the result is kept in %s)", v.Name, b.Cache)
	s := step{what: v.Name + " kernel", log: log}
	args := []string{"-C", src, "ARCH=um", "O=" + tmp}
	if err := b.run(ctx, s, "make", append(args, "KCONFIG_ALLCONFIG="+frag, "allnoconfig")...); err != nil {
		return err
	}
	if err := checkConfig(v.options, filepath.Join(tmp, ".config")); err != nil {
		return err
	}
	s.count = func(l string) bool {
		l = strings.TrimSpace(l)
		return strings.HasPrefix(l, "CC ") || strings.HasPrefix(l, "AS ") || strings.HasPrefix(l, "HOSTCC ")
	}
	s.total, s.unit = v.objects, "objects"
	args = append(args, fmt.Sprintf("-j%d", b.Jobs), "linux", "modules")
	if err := b.run(ctx, s, "make", args...); err != nil {
		return err
	}
	b.say("%s kernel: done", v.Name)
	return nil
}

// checkConfig compares what was asked with what Kconfig made of it: an option
// whose dependency is missing vanishes without a word.
func checkConfig(want, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	have := make(map[string]bool)
	for l := range strings.Lines(string(text)) {
		have[strings.TrimSpace(l)] = true
	}
	last := make(map[string]string) // a later line of the fragment replaces an earlier one
	for l := range strings.Lines(configLines(want)) {
		l = strings.TrimSpace(l)
		name, _, _ := strings.Cut(l, "=")
		last[name] = l
	}
	var lost []string
	for name, l := range last {
		if !have[l] && !(strings.HasSuffix(l, "=n") && !have[name+"=y"]) {
			lost = append(lost, l)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Errorf("kernel options that Kconfig did not accept: %s", strings.Join(lost, ", "))
	}
	return nil
}
