package daemon

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// ofedManager is the path of the script of MLNX_OFED that sets the mode and MTU of
// IPoIB links when they appear, "" where there is none, or it is kept from doing so.
func (o *Observer) ofedManager() string {
	if o.target("/etc/systemd/system/mlnx_interface_mgr@.service") == "/dev/null" {
		return ""
	}
	for line := range strings.Lines(o.text("/etc/infiniband/openib.conf")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "SET_IPOIB_CM="); ok && strings.Trim(v, `"'`) == "no" {
			return ""
		}
	}
	for _, p := range []string{"/usr/bin/mlnx_interface_mgr.sh", "/bin/mlnx_interface_mgr.sh"} {
		if o.exists(p) {
			return p
		}
	}
	return ""
}

// readHost gathers the facts that [Match] conditions ask about. root stands for
// /.
func readHost(root string) (h link.Host) {
	text := func(path string) string {
		b, err := os.ReadFile(filepath.Join("/", root, path))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	exists := func(path string) bool {
		_, err := os.Lstat(filepath.Join("/", root, path))
		return err == nil
	}
	f := units.HostFacts{
		MachineID:         text("/etc/machine-id"),
		KernelCommandLine: text("/proc/cmdline"),
		UEFI:              exists("/sys/firmware/efi"),
		DeviceTree:        exists("/sys/firmware/devicetree/base"),
	}
	f.Hostname, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.KernelRelease, f.Architecture = unix.ByteSliceToString(u.Release[:]), units.Architecture(unix.ByteSliceToString(u.Machine[:]))
	}
	if f.DeviceTree {
		f.Compatible = strings.Split(strings.Trim(text("/sys/firmware/devicetree/base/compatible"), "\x00"), "\x00")
	}
	f.Virtualization, f.VirtContainer = virtualization(text, exists)
	if m := text("/proc/self/uid_map"); m != "" {
		w := strings.Fields(m)
		f.PrivateUsers = len(w) != 3 || w[0] != "0" || w[1] != "0" || w[2] != "4294967295"
	}
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		if es, err := os.ReadDir(dir); err == nil {
			for _, e := range es {
				f.Credentials = append(f.Credentials, e.Name())
			}
		}
	}
	if es, err := os.ReadDir(filepath.Join("/", root, "/sys/class/dmi/id")); err == nil {
		f.SMBIOSFields = map[string]string{}
		for _, e := range es {
			if v := text("/sys/class/dmi/id/" + e.Name()); v != "" && len(v) < 256 && e.Type().IsRegular() {
				f.SMBIOSFields[e.Name()] = v
			}
		}
	}
	h.Facts = f
	h.NoIPv6 = !exists("/proc/sys/net/ipv6")
	return h
}

// virtualization knows the cases that files show; the words are
// those of systemd-detect-virt(1).
func virtualization(text func(string) string, exists func(string) bool) (word string, container bool) {
	if c := text("/run/systemd/container"); c != "" {
		return c, true
	}
	if c := os.Getenv("container"); c != "" {
		return c, true
	}
	if exists("/.dockerenv") {
		return "docker", true
	}
	if exists("/run/.containerenv") {
		return "podman", true
	}
	vendor := text("/sys/class/dmi/id/sys_vendor") + " " + text("/sys/class/dmi/id/product_name") + " " + text("/sys/class/dmi/id/bios_vendor")
	for _, v := range []struct{ part, word string }{
		{"KVM", "kvm"}, {"Amazon EC2", "amazon"}, {"QEMU", "qemu"}, {"VMware", "vmware"}, {"VirtualBox", "oracle"}, {"innotek", "oracle"},
		{"Xen", "xen"}, {"Bochs", "bochs"}, {"Parallels", "parallels"}, {"BHYVE", "bhyve"}, {"Microsoft Corporation Virtual", "microsoft"},
		{"Google Compute", "google"},
	} {
		if strings.Contains(vendor, v.part) {
			return v.word, false
		}
	}
	if strings.Contains(text("/proc/cpuinfo"), "User Mode Linux") {
		return "uml", false
	}
	if strings.Contains(text("/proc/cpuinfo"), " hypervisor") {
		return "vm-other", false
	}
	return "none", false
}
