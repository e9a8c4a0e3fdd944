// Package conf reads ibnetworkd.conf(5).
package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ibnetworkd/internal/smallfile"
)

// dirs are the directories of ibnetworkd.conf and its drop-ins, the first wins
// (systemd's order for networkd.conf).
var dirs = []string{"/etc/ibnetworkd", "/run/ibnetworkd", "/usr/local/lib/ibnetworkd", "/usr/lib/ibnetworkd"}

const (
	fileName = "ibnetworkd.conf"
	maxSize  = 64 << 10 // bytes of one file
)

// Settings are those of ibnetworkd.conf, and each mistake with its place.
type Settings struct {
	// WatchUnitFiles applies unit files when they change; otherwise they wait for a
	// reload.
	WatchUnitFiles bool
	Problems       []string
}

// Read reads ibnetworkd.conf below root, the first of its directories, and after it
// all drop-ins by name, of which one in an earlier directory replaces those of its
// name in later ones.
func Read(root string) Settings {
	c := Settings{WatchUnitFiles: true}
	for _, d := range dirs {
		if c.file(filepath.Join(root, d, fileName)) {
			break
		}
	}
	drop := map[string]string{}
	for _, d := range slices.Backward(dirs) {
		dir := filepath.Join(root, d, fileName+".d")
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.problem("%s: %v", dir, err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") {
				drop[e.Name()] = filepath.Join(dir, e.Name())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(drop)) {
		c.file(drop[name])
	}
	return c
}

func (c *Settings) problem(format string, a ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, a...))
}

// file reads one file and reports whether there is one.
func (c *Settings) file(path string) bool {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil && !st.Mode().IsRegular() && st.Mode()&fs.ModeCharDevice == 0 {
		err = errors.New("not a regular file")
	}
	var b []byte
	if err == nil && st.Mode().IsRegular() { // a link to /dev/null is an empty file
		b, err = smallfile.Read(path, maxSize)
	}
	if err != nil {
		c.problem("%s: %v", path, err)
		return true
	}
	c.parse(path, string(b))
	return true
}

var boolean = map[string]bool{"1": true, "yes": true, "true": true, "on": true, "0": false, "no": false, "false": false, "off": false}

// parse reads lines of systemd's form: sections, Key=value, comments with # or ;.
func (c *Settings) parse(path, text string) {
	section := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			if section = line[1 : len(line)-1]; section != "Daemon" {
				c.problem("%s:%d: unknown section %q, the only one is [Daemon]", path, n, section)
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok:
			c.problem("%s:%d: want Key=value", path, n)
		case section == "":
			c.problem("%s:%d: %s= is outside a section, write [Daemon] before it", path, n, key)
		case section != "Daemon":
		case key == "WatchUnitFiles" && value == "":
			c.WatchUnitFiles = true
		case key == "WatchUnitFiles":
			b, ok := boolean[strings.ToLower(value)]
			if !ok {
				c.problem("%s:%d: WatchUnitFiles=: %q is neither yes nor no", path, n, value)
				continue
			}
			c.WatchUnitFiles = b
		default:
			c.problem("%s:%d: unknown key %s= in [Daemon], the only one is WatchUnitFiles=", path, n, key)
		}
	}
}
