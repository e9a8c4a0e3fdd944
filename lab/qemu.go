package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kvmVar set to "1" makes QEMU use KVM.  It is not used unasked: some hosts have
// a /dev/kvm on which an unmodified kernel hangs.
const kvmVar = "IBNET_LAB_KVM"

func useKVM() bool { return os.Getenv(kvmVar) == "1" }

// qemuCommand returns the command of a guest with Debian's kernel.  The host's
// folders are 9p shares; the Debian userland is exported read-only.
func (m *machine) qemuCommand(dir, initrd string, quiet bool) *exec.Cmd {
	// The emulated CPUs take turns in one thread. In threads of their own, one may
	// translate an instruction while another patches it, up to QEMU 8.0 (Debian 12 has
	// 7.2), and runs into the breakpoint that the kernel had there for that time: each
	// ping switches a static key. See "accel/tcg: Always lock pages before translation"
	// in QEMU 8.1.
	accel := "tcg,thread=single"
	if useKVM() {
		accel = "kvm"
	}
	cmdline := []string{"console=ttyS0", "panic=-1", "nokaslr", "ibnetlab=9p:", "rdinit=/init", "loglevel=5", "mitigations=off"}
	if quiet {
		cmdline = append(cmdline, "quiet", "loglevel=3")
	}
	if m.cfg.Userland == Systemd {
		cmdline = append(cmdline, systemdArgs...)
	}
	cmdline = append(cmdline, m.queueArgs()...)
	cmdline = append(cmdline, strings.Fields(m.cfg.Append)...)
	args := []string{
		"-M", "q35", "-accel", accel, "-cpu", "max", "-smp", fmt.Sprint(m.cfg.CPUs), "-m", fmt.Sprint(m.cfg.Memory),
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio",
		"-kernel", m.kernel.Image, "-initrd", initrd, "-append", strings.Join(cmdline, " "),
	}
	share := func(tag, path, opts string) {
		args = append(args, "-fsdev", "local,id="+tag+",path="+path+",security_model=none,multidevs=remap"+opts,
			"-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	share("lab", dir, "")
	if m.rootfs != "" {
		share("rootfs", m.rootfs, ",readonly=on")
	}
	share("modules", filepath.Join(m.kernel.Modules, "lib/modules"), ",readonly=on")
	if strings.Contains(m.cfg.Swib, "pci=1") {
		// One adapter on the root bus and one behind a bridge.
		args = append(args, "-device", "edu,addr=5", "-device", "pcie-root-port,id=rp1,chassis=1,slot=7,addr=6", "-device", "edu,bus=rp1")
	}
	args = append(args, pciVFs(m.cfg.VFs)...)
	if m.cfg.netPath != "" {
		share("net", m.cfg.netPath, "")
	}
	// The cables that leave the kernel are network devices whose frames travel as
	// datagrams, as those of UML do.
	cmd := exec.Command("qemu-system-x86_64")
	for i, w := range m.cfg.wires {
		cmd.ExtraFiles = append(cmd.ExtraFiles, w.file)
		args = append(args, "-netdev", fmt.Sprintf("dgram,id=wire%d,local.type=fd,local.str=%d", i, 3+i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=wire%d,host_mtu=%d,mac=%s", i, wireMTU, wireMAC(i)))
	}
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// maxVFs keeps the numbers of queues and vectors small.
const maxVFs = 16

// pciVFs is an NVMe controller with virtual functions: the one device of QEMU 7.2
// that has them. Two queues and a vector for each function come out of its own.
func pciVFs(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{"-device", "nvme-subsys,id=subsys", "-device", "pcie-root-port,id=rpvf,chassis=2,slot=9,addr=9",
		"-device", fmt.Sprintf("nvme,serial=lab,subsys=subsys,bus=rpvf,sriov_max_vfs=%d,sriov_vq_flexible=%d,sriov_vi_flexible=%d,"+
			"max_ioqpairs=%d,msix_qsize=%d", n, 2*n, n, 2*n+2, n+2)}
}

// wireMAC is the address of the network device of a guest's wire in QEMU, by
// which the guest knows it.
func wireMAC(i int) string { return fmt.Sprintf("52:54:00:77:%02x:%02x", i>>8&0xff, i&0xff) }

// initModules are the modules without which a guest cannot reach its host.
func (m *machine) initModules() []string {
	if m.cfg.Machine != QEMU {
		return nil
	}
	return m.kernel.Boot
}

// queueArgs are the kernel parameters for Config.Queue.
func (m *machine) queueArgs() []string {
	if m.cfg.Queue == 0 {
		return nil
	}
	return []string{fmt.Sprintf("ib_ipoib.recv_queue_size=%d", m.cfg.Queue), fmt.Sprintf("ib_ipoib.send_queue_size=%d", m.cfg.Queue)}
}

var systemdArgs = []string{"systemd.show_status=0", "systemd.log_target=console", "systemd.log_level=warning"}
