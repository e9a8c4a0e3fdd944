package lab

import (
	"fmt"
	"io"
	"strings"
)

// cpioWriter writes the "newc" archive that the kernel unpacks as its first
// root file system (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpioWriter struct {
	w   io.Writer
	off int64
	ino int
	err error
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioChar = 0o020000
)

func (c *cpioWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.off += int64(n)
	c.err = err
}

func (c *cpioWriter) pad() {
	if n := c.off % 4; n != 0 {
		c.write(make([]byte, 4-n))
	}
}

func (c *cpioWriter) entry(name string, mode uint32, rdevMajor, rdevMinor uint32, data []byte) {
	c.ino++
	nlink := 1
	if mode&cpioDir == cpioDir {
		nlink = 2
	}
	name = strings.TrimPrefix(name, "/")
	hdr := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, nlink, 0, len(data), 0, 0, rdevMajor, rdevMinor, len(name)+1, 0)
	c.write([]byte(hdr + name + "\x00"))
	c.pad()
	c.write(data)
	c.pad()
}

func (c *cpioWriter) dir(name string) { c.entry(name, cpioDir|0o755, 0, 0, nil) }

func (c *cpioWriter) file(name string, mode uint32, data []byte) {
	c.entry(name, cpioFile|mode, 0, 0, data)
}

func (c *cpioWriter) char(name string, major, minor uint32) {
	c.entry(name, cpioChar|0o600, major, minor, nil)
}

func (c *cpioWriter) close() error {
	c.ino = -1
	c.entry("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}
