// Package procsys reads and writes the per-link sysctls of IPv4 and IPv6 under
// /proc/sys/net, in the network namespace of the calling thread.
package procsys

import (
	"fmt"
	"path/filepath"
	"strings"

	"ibnetworkd/internal/smallfile"
)

// Family is the directory below /proc/sys/net.
type Family string

// The families with per-link settings.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// FS is a /proc tree.
type FS struct{ root string }

// New takes the root directory, "" or "/" on a live system.
func New(root string) FS { return FS{root} }

// Path is the file of a setting.
func (f FS) Path(fam Family, link, key string) (string, error) {
	if fam != IPv4 && fam != IPv6 {
		return "", fmt.Errorf("%q has no per-link settings", fam)
	}
	// A dot in a link's name is a dot in its directory; only sysctl(8) writes
	// it as a slash.
	for _, s := range [2]string{link, key} {
		if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
			return "", fmt.Errorf("%q is not a name under /proc/sys", s)
		}
	}
	return filepath.Join(f.root, "/proc/sys/net", string(fam), "conf", link, key), nil
}

const maxValue = 4096

// Get reads a setting without its newline. fs.ErrNotExist says that the link is
// gone, has no IPv6, or that the kernel lacks the key.
func (f FS) Get(fam Family, link, key string) (string, error) {
	p, err := f.Path(fam, link, key)
	if err != nil {
		return "", err
	}
	var buf [maxValue + 1]byte
	b, err := smallfile.ReadTo(p, buf[:])
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(b), "\n"), nil
}

// Set writes a setting.
func (f FS) Set(fam Family, link, key, value string) error {
	p, err := f.Path(fam, link, key)
	if err != nil {
		return err
	}
	if len(value) > maxValue || strings.ContainsAny(value, "\n\x00") {
		return fmt.Errorf("%.40q is not a value for %s", value, p)
	}
	return smallfile.Write(p, []byte(value+"\n"))
}
