// Package configfs sets the defaults of the RDMA connection manager for a
// device's port: the RoCE version and the type of service of new connections
// (drivers/infiniband/core/cma_configfs.c).
//
// The directory of a device is a view of the connection manager's own state:
// making and removing it changes nothing. The values live as long as the RDMA
// device.
package configfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FS is a configfs tree.
type FS struct{ dir string }

// New takes the root directory, "" or "/" on a live system.
func New(root string) FS { return FS{filepath.Join("/", root, "sys/kernel/config/rdma_cm")} }

// Defaults of a port.
type Defaults struct {
	RoCEMode string // "IB/RoCE v1", "RoCE v2"
	ToS      uint8  // type of service byte: DSCP << 2 and two bits of ECN
}

// The modes, as the kernel spells them.
const (
	RoCEv1 = "IB/RoCE v1"
	RoCEv2 = "RoCE v2"
)

// ErrUnavailable means that configfs is not mounted or rdma_cm is not loaded.
var ErrUnavailable = errors.New("/sys/kernel/config/rdma_cm does not exist: load the module rdma_cm and mount configfs")

// Available reports whether defaults can be set at all.
func (f FS) Available() bool {
	_, err := os.Stat(f.dir)
	return err == nil
}

// open returns the directory of a port and makes the device's if needed; made
// is whether it did.
func (f FS) open(dev string, port int) (dir string, made bool, err error) {
	if dev == "" || dev == "." || dev == ".." || strings.ContainsAny(dev, "/\x00") {
		return "", false, fmt.Errorf("%.64q is not the name of an RDMA device", dev)
	}
	if !f.Available() {
		return "", false, ErrUnavailable
	}
	d := filepath.Join(f.dir, dev)
	err = os.Mkdir(d, 0o755)
	switch {
	case err == nil:
		made = true
	case errors.Is(err, fs.ErrExist):
	case errors.Is(err, unix.ENODEV):
		return "", false, fmt.Errorf("the RDMA connection manager has no device %s: %w", dev, unix.ENODEV)
	default:
		return "", false, err
	}
	return filepath.Join(d, "ports", strconv.Itoa(port)), made, nil
}

// with runs do with the directory of a port. A directory that it made is removed
// again, because it has a reference to the device.
func (f FS) with(dev string, port int, do func(dir string) error) error {
	const tries = 3
	for i := 1; ; i++ {
		dir, made, err := f.open(dev, port)
		if err != nil {
			return err
		}
		err = do(dir)
		if made {
			_ = os.Remove(filepath.Join(f.dir, dev))
		}
		// It may be gone: cma_roce_mode removes it, whichever program created it.
		if i == tries || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

func get(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	if len(b) > 4096 {
		return "", fmt.Errorf("%s/%s is longer than a page", dir, name)
	}
	return strings.TrimRight(string(b), "\n"), nil
}

// Get reads a port's defaults.
func (f FS) Get(dev string, port int) (d Defaults, err error) {
	err = f.with(dev, port, func(dir string) error {
		mode, err := get(dir, "default_roce_mode")
		if err != nil {
			return err
		}
		s, err := get(dir, "default_roce_tos")
		if err != nil {
			return err
		}
		v, err := strconv.ParseUint(s, 0, 8)
		if err != nil {
			return fmt.Errorf("%s/default_roce_tos: %.40q is not a type of service", dir, s)
		}
		d = Defaults{RoCEMode: mode, ToS: uint8(v)}
		return nil
	})
	return d, err
}

// SetRoCEMode sets the version of new connections.
func (f FS) SetRoCEMode(dev string, port int, mode string) error {
	if mode != RoCEv1 && mode != RoCEv2 {
		return fmt.Errorf("%.40q is not a RoCE mode (%s, %s)", mode, RoCEv1, RoCEv2)
	}
	return f.set(dev, port, "default_roce_mode", mode)
}

// SetToS sets the type of service of new connections.
func (f FS) SetToS(dev string, port int, tos uint8) error {
	return f.set(dev, port, "default_roce_tos", strconv.Itoa(int(tos)))
}

func (f FS) set(dev string, port int, name, value string) error {
	return f.with(dev, port, func(dir string) error {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(value)
		return errors.Join(err, file.Close())
	})
}
