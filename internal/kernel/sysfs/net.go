package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// NetDevice reads the bus device of a network interface; its SR-IOV state is nil unless
// it can have virtual functions.
func (f FS) NetDevice(name string) (BusDevice, *SRIOV, error) {
	p, err := f.join("class", "net", name, "device")
	if err != nil {
		return BusDevice{}, nil, err
	}
	s, err := sriov(p)
	return busDevice(p), s, err
}

// NetPath is the place of a network interface below /sys, "/sys/devices/...", "" if
// there is none of that name.
func (f FS) NetPath(name string) string {
	p, err := f.join("class", "net", name)
	if err != nil {
		return ""
	}
	t, err := os.Readlink(p)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(t) {
		t = filepath.Join(filepath.Dir(p), t)
	}
	return t
}

// SetIPoIBMode changes the mode, "datagram" or "connected", of the IPoIB interface
// that has this name and index now. Children that rtnetlink made have no such file,
// nor is there one with IPOIB_CM compiled out. (drivers/infiniband/ulp/ipoib/ipoib_cm.c, mode_store)
func (f FS) SetIPoIBMode(name string, index int, mode string) error {
	dir, err := f.join("class", "net", name)
	if err != nil {
		return err
	}
	// Names change, and what is mounted may be another namespace's.
	if s, err := read(dir + "/ifindex"); err != nil {
		return err
	} else if s != strconv.Itoa(index) {
		return fmt.Errorf("%s is interface %.20s, not %d", dir, s, index)
	}
	return write(dir+"/mode", mode)
}

func busDevice(link string) BusDevice {
	path, err := filepath.EvalSymlinks(link)
	if err != nil {
		return BusDevice{}
	}
	return BusDevice{Name: filepath.Base(path), Bus: base(path + "/subsystem"), Driver: base(path + "/driver")}
}

func sriov(dev string) (*SRIOV, error) {
	total, err := number(dev + "/sriov_totalvfs")
	if err != nil || total == nil {
		return nil, err
	}
	// A PCI function has at most 65535 virtual functions (TotalVFs, 16 bits).
	s := &SRIOV{TotalVFs: int(*total & 0xffff)}
	if v, err := number(dev + "/sriov_drivers_autoprobe"); err == nil && v != nil {
		s.Autoprobe = new(*v != 0)
	}
	// The functions are counted by their links: a reader of sriov_numvfs waits for
	// its writer, and so for the drivers of all functions (sriov_numvfs_show).
	for s.NumVFs < s.TotalVFs {
		name, err := os.Readlink(dev + "/virtfn" + strconv.Itoa(s.NumVFs))
		if err != nil {
			break
		}
		s.VFs = append(s.VFs, filepath.Base(name))
		s.NumVFs++
	}
	return s, nil
}

// NumVFs reads the number of virtual functions of a bus device. It waits for a
// writer of the number, which may take as long as the drivers of all functions.
func (f FS) NumVFs(bus, dev string) (int, error) {
	p, err := f.join("bus", bus, "devices", dev, "sriov_numvfs")
	if err != nil {
		return 0, err
	}
	n, err := number(p)
	if err != nil {
		return 0, err
	}
	if n == nil || *n > 0xffff {
		return 0, fmt.Errorf("%s: no number of virtual functions", p)
	}
	return int(*n), nil
}

func bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// PortType is the type of a port of a card that can be both (mlx4).
type PortType struct {
	Configured string // "ib", "eth", "auto"
	Current    string // "ib", "eth"; what auto found, else Configured
}

// portTypeFiles are the drivers' attributes: mlx4's, and that of the lab's
// software adapter.
var portTypeFiles = [...]string{"mlx4_port", "swib_port"}

// PortTypeFile is the name of the attribute with the type of a port (from 1) of a
// bus device, "" if its driver has none.
func (f FS) PortTypeFile(bus, dev string, port int) string {
	p, err := f.portTypeFile(bus, dev, port)
	if err != nil {
		return ""
	}
	return filepath.Base(p)
}

func (f FS) portTypeFile(bus, dev string, port int) (string, error) {
	dir, err := f.join("bus", bus, "devices", dev)
	if err != nil {
		return "", err
	}
	for _, n := range portTypeFiles {
		p := dir + "/" + n + strconv.Itoa(port)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s has no port type file for port %d: %w", dev, port, fs.ErrNotExist)
}

// PortType reads the type of a port (from 1) of a bus device ("pci",
// "0000:3b:00.0"). fs.ErrNotExist means that the driver has no such setting.
func (f FS) PortType(bus, dev string, port int) (PortType, error) {
	p, err := f.portTypeFile(bus, dev, port)
	if err != nil {
		return PortType{}, err
	}
	s, err := read(p)
	if err != nil {
		return PortType{}, err
	}
	t, ok := parsePortType(s)
	if !ok {
		return PortType{}, fmt.Errorf("%s: %.64q is not a port type", p, s)
	}
	return t, nil
}

// parsePortType reads "ib", "eth", "auto (ib)".
func parsePortType(s string) (PortType, bool) {
	conf, cur, auto := strings.Cut(strings.TrimSpace(s), " (")
	if !auto {
		if conf == "auto" {
			return PortType{Configured: conf}, true
		}
		return PortType{conf, conf}, conf == "ib" || conf == "eth"
	}
	cur = strings.TrimSuffix(cur, ")")
	return PortType{conf, cur}, conf == "auto" && (cur == "ib" || cur == "eth")
}

// SetPortType writes the type of a port: "ib", "eth" or "auto". The RDMA device
// and the network interfaces of the card are created again.
func (f FS) SetPortType(bus, dev string, port int, typ string) error {
	if typ != "ib" && typ != "eth" && typ != "auto" {
		return fmt.Errorf("%.40q is not a port type (ib, eth, auto)", typ)
	}
	p, err := f.portTypeFile(bus, dev, port)
	if err != nil {
		return err
	}
	return write(p, typ)
}

// SetNumVFs sets the number of virtual functions of a bus device. The kernel
// answers EBUSY if there are some and another number than 0 is asked for.
func (f FS) SetNumVFs(bus, dev string, n int) error {
	if n < 0 || n > 0xffff {
		return fmt.Errorf("%d is not a number of virtual functions", n)
	}
	return f.set(strconv.Itoa(n), "bus", bus, "devices", dev, "sriov_numvfs")
}

// SetAutoprobe sets whether drivers bind to new virtual functions.
func (f FS) SetAutoprobe(bus, dev string, on bool) error {
	return f.set(bit(on), "bus", bus, "devices", dev, "sriov_drivers_autoprobe")
}

// BusDevice reads a device on a bus.
func (f FS) BusDevice(bus, dev string) (BusDevice, *SRIOV, error) {
	p, err := f.join("bus", bus, "devices", dev)
	if err != nil {
		return BusDevice{}, nil, err
	}
	if _, err := os.Stat(p); err != nil {
		return BusDevice{}, nil, err
	}
	s, err := sriov(p)
	return busDevice(p), s, err
}

// Unbind takes a bus device from its driver.
func (f FS) Unbind(bus, dev string) error {
	return f.set(dev, "bus", bus, "devices", dev, "driver", "unbind")
}

// Bind lets the bus find a driver for the device.
func (f FS) Bind(bus, dev string) error {
	return f.set(dev, "bus", bus, "drivers_probe")
}

// DriverOverride is the driver that a device is kept for, "" for none, and false
// where the bus has no such file.
func (f FS) DriverOverride(bus, dev string) (string, bool) {
	p, err := f.join("bus", bus, "devices", dev, "driver_override")
	if err != nil {
		return "", false
	}
	s, err := read(p)
	if err != nil {
		return "", false
	}
	if s = strings.TrimSpace(s); s == "(null)" {
		s = ""
	}
	return s, true
}

// SetDriverOverride keeps a device for a driver, which then probes it also where
// drivers are not bound by themselves (pci_device_can_probe); "" ends it.
func (f FS) SetDriverOverride(bus, dev, driver string) error {
	return f.set(driver, "bus", bus, "devices", dev, "driver_override")
}

// ModuleLoaded reports whether a module is loaded or built in with parameters.
func (f FS) ModuleLoaded(name string) bool {
	p, err := f.join("module", strings.ReplaceAll(name, "-", "_"))
	if err != nil {
		return false
	}
	_, err = os.Stat(p)
	return err == nil
}

// ECN reads for which priorities congestion notification is on at both ends,
// one bit each, where the driver has the files for it (mlx5 of the vendor's
// package): nil where not.
func (f FS) ECN(link string) (*uint8, error) {
	dir, err := f.join("class", "net", link, "ecn")
	if err != nil {
		return nil, err
	}
	var set uint8
	for prio := range 8 {
		np, err := number(dir + "/roce_np/enable/" + strconv.Itoa(prio))
		if err != nil {
			return nil, err
		}
		rp, err := number(dir + "/roce_rp/enable/" + strconv.Itoa(prio))
		if err != nil {
			return nil, err
		}
		if np == nil || rp == nil {
			return nil, nil
		}
		if *np != 0 && *rp != 0 {
			set |= 1 << prio
		}
	}
	return &set, nil
}

// SetECN turns congestion notification of a priority (0 to 7) on or off at both
// ends.
func (f FS) SetECN(link string, prio uint8, on bool) error {
	dir, err := f.join("class", "net", link, "ecn")
	if err != nil {
		return err
	}
	if prio > 7 {
		return fmt.Errorf("%d is not a priority (0 to 7)", prio)
	}
	n := strconv.Itoa(int(prio))
	return errors.Join(write(dir+"/roce_np/enable/"+n, bit(on)), write(dir+"/roce_rp/enable/"+n, bit(on)))
}
