// Package udevdb reads systemd-udevd's database under /run/udev/data: whether
// the rules for a device have run, and the properties they left. It reads
// files; who wants to know when they change listens to uevents.
package udevdb

import (
	"bytes"
	"errors"
	"fmt"
	"ibnetworkd/internal/smallfile"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DB is a database directory.
type DB struct{ root string }

// New takes the root directory, "" or "/" on a live system.
func New(root string) DB { return DB{root} }

func (d DB) path(name string) string { return filepath.Join(d.root, "/run/udev", name) }

// Running reports whether udevd runs, or ran and left its database: without it
// no device will ever be initialised and waiting for that is in vain.
func (d DB) Running() bool {
	_, err := os.Lstat(d.path("control"))
	return err == nil
}

// Record is what udevd knows of a device.
type Record struct {
	// Found reports that there is a record at all.
	Found bool
	// Initialized reports that the rules have run once (the I: line).
	Initialized bool
	props       map[string]string
}

// Get is the value of a property, "" if absent. Those that matter here:
// ID_PATH, ID_NET_MANAGED_BY, ID_RENAMING, ID_NET_NAME, ID_NET_DRIVER.
func (r Record) Get(key string) string { return r.props[key] }

// Properties is all of them; the caller must not change the map.
func (r Record) Properties() map[string]string { return r.props }

// Renaming reports that udevd is about to rename the interface.
func (r Record) Renaming() bool {
	v := r.Get("ID_RENAMING")
	return v == "1" || strings.EqualFold(v, "yes") || strings.EqualFold(v, "true")
}

// Net reads the record of a network interface. No record is not an error.
func (d DB) Net(ifindex int) (Record, error) {
	return d.read("n" + strconv.Itoa(ifindex))
}

// Device reads the record of any device without a device number, such as the
// PCI function 0000:3b:00.0.
func (d DB) Device(subsystem, name string) (Record, error) {
	return d.read("+" + subsystem + ":" + name)
}

// maxRecord bounds a file; real ones have one to two KiB.
const maxRecord = 256 << 10

func (d DB) read(id string) (Record, error) {
	// A slash in a device's name is an exclamation mark in its sysfs name, so
	// one here never came from the kernel.
	if strings.ContainsAny(id, "/\x00") {
		return Record{}, fmt.Errorf("%q is not a device id", id)
	}
	b, err := smallfile.Read(d.path("data/"+id), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("read udev's record: %w", err)
	}
	return Parse(b), nil
}

// Parse reads a record: lines of one letter, a colon and a value. Letters that
// are not known and lines without a colon are skipped.
func Parse(b []byte) Record {
	r := Record{Found: true}
	properties := min(bytes.Count(b, []byte("\nE:")), 64)
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if len(line) < 2 || line[1] != ':' {
			continue
		}
		v := line[2:]
		switch line[0] {
		case 'I':
			r.Initialized = len(v) > 0
		case 'E':
			if k, val, ok := bytes.Cut(v, []byte{'='}); ok {
				if r.props == nil {
					r.props = make(map[string]string, properties)
				}
				r.props[string(k)] = string(val)
			}
		}
	}
	return r
}
