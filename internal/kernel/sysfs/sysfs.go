// Package sysfs reads what netlink does not report of InfiniBand devices, ports
// and their network interfaces, and writes the few settings that netlink lacks.
//
// It is rooted at a path, so that tests use trees of files. An absent file gives
// "", nil or a type's "unknown" value, never zero; a file that cannot be parsed is
// an error that names it. A device that disappears while it is read is
// fs.ErrNotExist.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/internal/smallfile"
)

// FS is a /sys tree.
type FS struct{ root string }

// New takes the root directory, "" or "/" on a live system.
func New(root string) FS { return FS{filepath.Join("/", root, "sys")} }

// maxAttr is the size of a page, which bounds a sysfs attribute.
const maxAttr = 4096

// join makes a path below /sys out of names; one that is not a name is refused,
// so that no event and no unit file can lead out of the tree.
func (f FS) join(names ...string) (string, error) {
	var b strings.Builder
	b.WriteString(f.root)
	for _, n := range names {
		if !isName(n) {
			return "", fmt.Errorf("%.64q is not a name under /sys", n)
		}
		b.WriteByte('/')
		b.WriteString(n)
	}
	return b.String(), nil
}

func isName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) < 256 && !strings.ContainsAny(s, "/\x00")
}

// read gives an attribute without its final newline.
func read(path string) (string, error) {
	var buf [maxAttr + 1]byte
	b, err := smallfile.ReadTo(path, buf[:])
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(b), "\n"), nil
}

// write writes an attribute in one system call, with a newline: mlx4 compares a
// port's type with its newline (set_port_type).
func write(path, value string) error { return writeEnded(path, value, "\n") }

// set writes the attribute at the path that names make below /sys.
func (f FS) set(value string, names ...string) error {
	p, err := f.join(names...)
	if err != nil {
		return err
	}
	return write(p, value)
}

func writeEnded(path, value, end string) error {
	if strings.ContainsAny(value, "\n\x00") || len(value) >= maxAttr {
		return fmt.Errorf("%.64q is not a value for %s", value, path)
	}
	err := smallfile.Write(path, []byte(value+end))
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return &fs.PathError{Op: "write " + strconv.Quote(value) + " to", Path: path, Err: pe.Err}
	}
	return err
}

// text is an attribute, or "" if there is none or it has no value now: a driver
// answers EINVAL, EOPNOTSUPP, ENODATA or EIO then.
func text(path string) string {
	s, err := read(path)
	if err != nil {
		return ""
	}
	return s
}

// number is an attribute in decimal, or hexadecimal with 0x; nil if there is
// none.
func number(path string) (*uint64, error) {
	s, err := read(path)
	if err != nil {
		return nil, nil
	}
	v, err := strconv.ParseUint(strings.TrimSpace(s), 0, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %.64q is not a number", path, s)
	}
	return &v, nil
}

// names lists a directory's entries in order; numbers by value.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	ns, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ns, natural)
	return ns, nil
}

// natural orders mlx5_2 before mlx5_10.
func natural(a, b string) int {
	ta, na := splitNumber(a)
	tb, nb := splitNumber(b)
	if c := strings.Compare(ta, tb); c != 0 || na == nb {
		return c
	}
	if na < nb {
		return -1
	}
	return 1
}

func splitNumber(s string) (string, int) {
	i := len(s)
	for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' && len(s)-i < 9 {
		i--
	}
	n, err := strconv.Atoi(s[i:])
	if err != nil {
		n = -1
	}
	return s[:i], n
}

// base is the last element of what a symbolic link points to, "" if it is none.
func base(path string) string {
	t, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(t)
}
