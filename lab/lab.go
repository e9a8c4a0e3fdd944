package lab

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"ibnetworkd/lab/build"
)

//go:embed swib
var swibFiles embed.FS

// SwibSource is the source of the software fabric module.
func SwibSource() fs.FS {
	f, err := fs.Sub(swibFiles, "swib")
	if err != nil {
		panic(err) // the path is embedded above
	}
	return f
}

// Userland is what a guest has besides the kernel and the test binary.
type Userland int

const (
	// Bare has nothing: the test binary is the only program.  Boots in less
	// than half a second.
	Bare Userland = iota
	// Debian has the Debian userland (opensm, infiniband-diags, iproute2 and
	// more, see build.Packages), but no service runs.
	Debian
	// Systemd is Debian with systemd as the first process, with udev and D-Bus.
	// The test function runs as the service lab.service.
	Systemd
)

func (u Userland) String() string {
	switch u {
	case Bare:
		return "bare"
	case Debian:
		return "debian"
	case Systemd:
		return "systemd"
	}
	return "unknown"
}

// Machine is what runs the guest's kernel.
type Machine int

const (
	// UML is User Mode Linux: boots in 0.2 s, one CPU, no PCI.
	UML Machine = iota
	// QEMU is Debian's unmodified kernel in an emulated PC: slower, but with
	// several CPUs, PCI devices, and the InfiniBand stack as modules.
	QEMU
)

// Config describes the guest that a test needs. The zero value is a bare UML guest with
// two one-port adapters on one switch.
type Config struct {
	Userland Userland
	Machine  Machine
	Series   string // QEMU only: "6.1" (bookworm, if empty) or "6.12" (backports)

	// The fabric.
	HCAs  int // number of adapters, 2 if 0; -1: do not load the module
	Ports int // ports of each adapter, 1 or 2, 1 if 0
	// Topology is a whole fabric in ibnetdiscover's format; it replaces HCAs,
	// Ports and Cabled.  Adapters become swib0, swib1, ... by node GUID.
	Topology string
	Cabled   bool // adapters 2n and 2n+1 are joined by cables instead of a switch
	PKeys    int  // size of the P_Key tables, a multiple of 32 up to 512, 32 if 0
	// Commands go to the fabric's control file when the module is loaded.
	Commands []string
	Swib     string // further module parameters, e.g. "cm=0"; see swib/README.md

	// Queue is the length of IPoIB's send and receive queues, a power of two from
	// 16 up.  Each entry of each link takes 64 KiB where connected mode is possible:
	// 0 is 16 for more than 8 ports or with PKeys set, and the kernel's own choice else.
	Queue int

	// Bins are programs that the guest gets in its PATH: import paths of main
	// packages of this module, or absolute names of static executables.
	Bins []string
	// Files are put into the guest's root before anything starts: absolute
	// name to content.
	Files map[string]string
	// Installed puts in place what this project's package installs (Systemd only): the
	// programs, the units, the bus's and polkit's policies, udev's rules and the users.
	// Bins and Files go before it.  In a Shell the daemon is also enabled, as the package
	// does it; a test says with Units what it starts.
	Installed bool
	// Env are further variables (NAME=value) of the test's environment.
	Env []string
	// Units are systemd units to start at boot (Systemd only), e.g.
	// "NetworkManager.service".
	Units []string

	Memory     int           // MiB; 0: 256 for Bare, 768 else
	Timeout    time.Duration // of the whole guest; never less than 10 minutes
	CPUs       int           // QEMU only, 2 if 0
	VFs        int           // QEMU only: a PCI device (NVMe) that can have so many virtual functions
	TimeTravel bool          // UML only: sleeping costs nothing, the clock jumps
	Small      bool          // UML only: a kernel with IPoIB and little else is enough where no other is built yet
	Append     string        // further kernel parameters
	// AllowKernelErrors keeps warnings and oopses of the kernel from failing
	// the test.
	AllowKernelErrors bool

	node    string // of a Net
	noHCAs  bool   // a switch: not even the default number
	netPath string // folder of the host that the guests of a Net share
	wires   []wire
}

// Limits of the fabric module, see swib/types.h.
const (
	maxHCAs        = 1024
	maxPorts       = 2
	maxSwitchPorts = 254
	maxPKeys       = 512
	maxQueue       = 8192 // of ib_ipoib
)

// check reports what cannot be right about a config, as its author gave it.
func (c Config) check() error {
	ports := max(c.Ports, 1)
	switch {
	case c.Userland < Bare || c.Userland > Systemd:
		return fmt.Errorf("there is no Userland %d", c.Userland)
	case c.Machine != UML && c.Machine != QEMU:
		return fmt.Errorf("there is no Machine %d", c.Machine)
	case c.HCAs < -1 || c.HCAs > maxHCAs:
		return fmt.Errorf("%d adapters: want 1 to %d, or -1 for no fabric at all", c.HCAs, maxHCAs)
	case c.Ports < 0 || c.Ports > maxPorts:
		return fmt.Errorf("%d ports: an adapter has 1 to %d", c.Ports, maxPorts)
	case c.HCAs*ports > maxSwitchPorts && c.Topology == "" && !c.Cabled && !strings.Contains(c.Swib, "topo="):
		return fmt.Errorf("%d adapters of %d ports: one switch has %d ports; a Topology has several switches", c.HCAs, ports, maxSwitchPorts)
	case c.PKeys < 0 || c.PKeys > maxPKeys || c.PKeys%32 != 0:
		return fmt.Errorf("P_Key tables of %d entries: want a multiple of 32 up to %d", c.PKeys, maxPKeys)
	case c.Queue != 0 && (c.Queue < 16 || c.Queue > maxQueue || c.Queue&(c.Queue-1) != 0):
		return fmt.Errorf("queues of %d entries: want a power of two from 16 to %d", c.Queue, maxQueue)
	case c.Memory < 0:
		return fmt.Errorf("%d MiB of memory", c.Memory)
	case c.CPUs < 0:
		return fmt.Errorf("%d CPUs", c.CPUs)
	case c.Machine == QEMU && c.TimeTravel:
		return errors.New("with TimeTravel: only the clock of UML can jump, not that of QEMU")
	case c.Machine == QEMU && c.Small:
		return errors.New("with Small: the kernel of QEMU is Debian's")
	case c.Machine != QEMU && c.Series != "":
		return fmt.Errorf("kernel series %s: only QEMU has a choice of kernels", c.Series)
	case c.Machine != QEMU && c.CPUs > 1:
		return fmt.Errorf("%d CPUs: only QEMU has more than one", c.CPUs)
	case c.Machine != QEMU && c.VFs != 0:
		return fmt.Errorf("%d virtual functions: only QEMU has such a device", c.VFs)
	case c.VFs < 0 || c.VFs > maxVFs:
		return fmt.Errorf("%d virtual functions: want up to %d", c.VFs, maxVFs)
	case c.Userland != Systemd && len(c.Units) > 0:
		return fmt.Errorf("unit %s: only the userland Systemd starts units", c.Units[0])
	case c.Userland != Systemd && c.Installed:
		return errors.New("with Installed: only the userland Systemd has use for units and policies")
	}
	if c.Machine == QEMU && c.Series != "" && !slices.Contains(build.AllSeries, c.Series) {
		return fmt.Errorf("kernel series %q: want %s", c.Series, strings.Join(build.AllSeries, " or "))
	}
	for name := range c.Files {
		if err := c.checkFile(name); err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
	}
	return checkParams(c.Swib)
}

// checkFile reports what cannot be right about the name of one of Files.
func (c Config) checkFile(name string) error {
	switch {
	case !filepath.IsAbs(name):
		return errors.New("want an absolute name")
	case strings.HasSuffix(name, "/"):
		return errors.New("want the name of a file, not of a folder")
	case filepath.Clean(name) != name:
		return fmt.Errorf("want %s", filepath.Clean(name))
	}
	for dir := filepath.Dir(name); dir != "/"; dir = filepath.Dir(dir) {
		if slices.Contains([]string{"/dev", "/proc", "/run", "/sys", "/tmp", shareDir}, dir) {
			return fmt.Errorf("what the guest mounts on %s would hide it", dir)
		}
		if _, ok := c.Files[dir]; ok {
			return fmt.Errorf("%s is a file too", dir)
		}
	}
	return nil
}

var swibParam = regexp.MustCompile(`(?m)^module_param(?:_named)?\((\w+),`)

// checkParams makes sure that the fabric module has the parameters: the kernel loads a
// module with others too, and says so in its log alone.
func checkParams(params string) error {
	source, err := swibFiles.ReadFile("swib/main.c")
	if err != nil {
		panic(err) // it is embedded above
	}
	var known []string
	for _, m := range swibParam.FindAllSubmatch(source, -1) {
		known = append(known, string(m[1]))
	}
	for p := range strings.FieldsSeq(params) {
		if name, _, _ := strings.Cut(p, "="); !slices.Contains(known, name) {
			return fmt.Errorf("the fabric module has no parameter %q; it has %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.HCAs == 0 && !c.noHCAs {
		c.HCAs = 2
	}
	c.Ports = cmp.Or(c.Ports, 1)
	if c.Installed {
		c = c.install()
	}
	if c.Memory == 0 {
		c.Memory = 768
		if c.Userland == Bare {
			c.Memory = 256
		}
	}
	c.CPUs = cmp.Or(c.CPUs, 2)
	c.Series = cmp.Or(c.Series, build.Series)
	if c.Machine == QEMU {
		c.Memory = max(c.Memory, 768)
	}
	if c.Queue == 0 && (c.HCAs*c.Ports > 8 || c.PKeys > 0 || c.Topology != "") {
		c.Queue = 16
	}
	c.Timeout = Patience(max(c.Timeout, leastTimeout))
	if Sanitizing() {
		c.Memory += c.Memory / 2 // the checkers' shadow
	}
	return c
}
