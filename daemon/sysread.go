package daemon

import (
	"errors"
	"fmt"
	"ibnetworkd/internal/smallfile"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
)

// Reading a new device needs a dozen small values of it. Package sysfs
// reads all there is, for those who show it; here each value is three system
// calls, and only those are read that a plan depends on.

// text is a small file below root without the blanks around, "" if it cannot be
// read.
func (o *Observer) text(path string) string {
	path = filepath.Join("/", o.root, path)
	b, err := smallfile.ReadTo(path, o.buf)
	if errors.Is(err, smallfile.ErrTooLarge) {
		b, err = smallfile.Read(path, 1<<16)
	}
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// target is what a symbolic link below root says, "" if it is none.
func (o *Observer) target(path string) string {
	var buf [1024]byte
	n, err := unix.Readlink(filepath.Join("/", o.root, path), buf[:])
	if err != nil || n <= 0 {
		return ""
	}
	return string(buf[:n])
}

// base is the last element of a link's target.
func (o *Observer) base(link string) string {
	t := o.target(link)
	if t == "" {
		return ""
	}
	return path.Base(t)
}

// parentOf is the place below /sys, "devices/...", of the device that an entry of a class
// belongs to, "" for one of software.
func (o *Observer) parentOf(class, name string) string {
	t := o.target("/sys/class/" + class + "/" + name)
	device, ok := strings.CutSuffix(strings.TrimPrefix(path.Join("/class/"+class, t), "/"), "/"+class+"/"+name)
	if t == "" || !ok || device == "devices/virtual" {
		return ""
	}
	return device
}

// portFacts reads what RDMA netlink does not tell of a port.
func (o *Observer) portFacts(dev string, num int) (layer ib.LinkLayer, guid ib.GUID, rate string) {
	dir := fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/", dev, num)
	layer, _ = ib.ParseLinkLayer(o.text(dir + "link_layer"))
	if layer == ib.LinkLayerInfiniBand {
		// Entry 0 of the table is the port's own: prefix and GUID.
		if g, err := ib.ParseGID(o.text(dir + "gids/0")); err == nil {
			guid = g.GUID()
		}
	}
	return layer, guid, o.text(dir + "rate")
}
