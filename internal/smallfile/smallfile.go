// Package smallfile reads and writes small files of sysfs, procfs and /run with
// as few system calls as there have to be. Package os asks for a file's flags and
// shows it to the poller, six calls where three do; a daemon that reads a few
// dozen such files for each device that comes notices.
package smallfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func failed(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

func retry(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// ErrTooLarge means that a file has more bytes than its reader takes.
var ErrTooLarge = errors.New("file too large")

// Read reads a file of at most most bytes. It takes a read that fills less than
// it could for the end, which it is for regular files, sysfs and settings under
// /proc/sys.
func Read(path string, most int) ([]byte, error) { return read(path, most, 0) }

// ErrNotRegular means that a file is a directory, pipe, socket or device.
var ErrNotRegular = errors.New("not a regular file")

// ReadRegular is Read for regular files only. A pipe or device that has taken the
// file's place is not waited for.
func ReadRegular(path string, most int) ([]byte, error) {
	return read(path, most, unix.O_NONBLOCK|unix.O_NOCTTY)
}

func read(path string, most, flags int) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0) })
	if err != nil {
		return nil, failed("open", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	first := 4096
	if flags != 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, failed("stat", path, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil, failed("read", path, ErrNotRegular)
		}
		// Callers keep the content. Files of a file system of the kernel have no size.
		if st.Size > 0 {
			first = int(min(st.Size, int64(most))) + 1
		}
	}
	buf := make([]byte, 0, min(most+1, first))
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return nil, failed("read", path, err)
		}
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > most:
			return nil, failed("read", path, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most))
		case len(buf) < cap(buf):
			return buf, nil
		}
		buf = append(make([]byte, 0, min(2*cap(buf), most+1)), buf...)
	}
}

// ReadTo reads a file of less than len(buf) bytes into buf, for callers that read
// many and keep none. See Read for its end.
func ReadTo(path string, buf []byte) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, failed("open", path, err)
	}
	n, err := retry(func() (int, error) { return unix.Read(fd, buf) })
	_ = unix.Close(fd)
	switch {
	case err != nil:
		return nil, failed("read", path, err)
	case n == len(buf):
		return nil, failed("read", path, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, len(buf)-1))
	}
	return buf[:n], nil
}

// Write writes to a file that is there, in one call, as files of sysfs and
// /proc/sys want it.
func Write(path string, b []byte) error {
	return write(path, b, unix.O_WRONLY, 0)
}

func write(path string, b []byte, flags int, perm uint32) error {
	fd, err := retry(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, perm) })
	if err != nil {
		return failed("open", path, err)
	}
	n, err := retry(func() (int, error) { return unix.Write(fd, b) })
	cerr := unix.Close(fd)
	switch {
	case err != nil:
		return failed("write", path, err)
	case n < len(b):
		return failed("write", path, unix.ENOSPC)
	case cerr != nil:
		return failed("close", path, cerr)
	}
	return nil
}

// Keep replaces a file that only this program uses, and removes it where there is nothing to be kept.
func Keep(path, text string) error {
	if text != "" {
		return Replace(path, []byte(text), 0o600)
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return failed("remove", path, err)
	}
	return nil
}

// Replace puts a file in place of another in one step, for readers that come at
// any time. It is not synced to a disk: it is for directories that live in memory
// and end with the boot, where a crash of the process cannot tear a rename.
func Replace(path string, b []byte, perm fs.FileMode) error {
	dir, name := filepath.Split(path)
	tmp := dir + "." + name + ".new"
	if err := write(tmp, b, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, uint32(perm.Perm())); err != nil {
		_ = unix.Unlink(tmp)
		return err
	}
	if err := unix.Rename(tmp, path); err != nil {
		_ = unix.Unlink(tmp)
		return failed("rename", path, err)
	}
	return nil
}
