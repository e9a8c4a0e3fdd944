// Package unitfs reads unit directories of the system or of an image below a root
// directory. It follows links as chroot(2) would, opens nothing but regular
// files, and never waits for a file's other end.
package unitfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/smallfile"
)

// maxLinks is how many links a path may have (the kernel's MAXSYMLINKS).
const maxLinks = 40

// Resolve follows every link of a path below root: an absolute link and ".." stay
// below it. inside is the result as seen from the root, host its path on this
// system. A name that does not exist is kept as it is.
func Resolve(root, name string) (inside, host string, err error) {
	root = filepath.Join("/", root)
	rest := strings.Split(path.Clean("/"+name), "/")
	inside = "/"
	for links := 0; len(rest) > 0; {
		e := rest[0]
		rest = rest[1:]
		switch e {
		case "", ".":
			continue
		case "..":
			inside = path.Dir(inside)
			continue
		}
		next := path.Join(inside, e)
		target, err := os.Readlink(filepath.Join(root, next))
		switch {
		case err == nil:
			if links++; links > maxLinks {
				return "", "", &fs.PathError{Op: "open", Path: name, Err: unix.ELOOP}
			}
			if path.IsAbs(target) {
				inside = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		case errors.Is(err, unix.EINVAL), absent(err):
			inside = next
		default:
			return "", "", err
		}
	}
	return inside, filepath.Join(root, inside), nil
}

// absent reports either of the errors that say that a name does not exist.
func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// Plain makes fs.ErrNotExist of every error that says that a name does not exist:
// ENOTDIR is one.
func Plain(err error) error {
	var pe *fs.PathError
	switch {
	case err == nil || !absent(err):
		return err
	case errors.As(err, &pe):
		return &fs.PathError{Op: pe.Op, Path: pe.Path, Err: fs.ErrNotExist}
	}
	return fs.ErrNotExist
}

// ReadFile reads a regular file of at most most bytes below root, which stands for /.
func ReadFile(root, name string, most int) ([]byte, error) {
	host, err := New(root, "/").Host(strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return nil, err
	}
	b, err := smallfile.ReadRegular(host, most)
	return b, Plain(err)
}

// Dir is one directory below a root. It implements units.MaskFS.
type Dir struct{ root, dir string }

// New is the directory dir below root; it need not exist.
func New(root, dir string) *Dir {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	return &Dir{root, dir}
}

// Host is the path of a name on this system.
func (d *Dir) Host(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	_, host, err := Resolve(d.root, path.Join(d.dir, name))
	return host, Plain(err)
}

// Open implements fs.FS. What is not a regular file is not opened, only its
// FileInfo is there.
func (d *Dir) Open(name string) (fs.File, error) {
	host, err := d.Host(name)
	if err != nil {
		return nil, err
	}
	st, err := os.Lstat(host)
	if err != nil {
		err = Plain(err)
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			pe.Op = "open"
		}
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return closed{st}, nil
	}
	// Between the two calls the file may have become a pipe or a device.
	f, err := os.OpenFile(host, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, Plain(err)
	}
	if st, err = f.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		return closed{st}, nil
	}
	return f, nil
}

// ReadDir implements fs.ReadDirFS.
func (d *Dir) ReadDir(name string) ([]fs.DirEntry, error) {
	host, err := d.Host(name)
	if err != nil {
		return nil, err
	}
	es, err := os.ReadDir(host)
	return es, Plain(err)
}

// Lstat implements fs.ReadLinkFS.
func (d *Dir) Lstat(name string) (fs.FileInfo, error) {
	host, err := d.Host(path.Dir(name))
	if err != nil {
		return nil, err
	}
	st, err := os.Lstat(filepath.Join(host, path.Base(name)))
	return st, Plain(err)
}

// ReadLink implements fs.ReadLinkFS.
func (d *Dir) ReadLink(name string) (string, error) {
	host, err := d.Host(path.Dir(name))
	if err != nil {
		return "", err
	}
	return os.Readlink(filepath.Join(host, path.Base(name)))
}

// Masked implements units.MaskFS.
func (d *Dir) Masked(name string) (bool, error) {
	inside, _, err := Resolve(d.root, path.Join(d.dir, name))
	return inside == "/dev/null", Plain(err)
}

// closed is a file that was not opened.
type closed struct{ st fs.FileInfo }

func (c closed) Stat() (fs.FileInfo, error) { return c.st, nil }
func (c closed) Close() error               { return nil }
func (c closed) Read([]byte) (int, error) {
	return 0, fmt.Errorf("%s is not a regular file", c.st.Name())
}
