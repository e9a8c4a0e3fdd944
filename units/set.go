package units

import (
	"crypto/sha256"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Dirs are the unit directories in falling priority, below the root directory.
var Dirs = []string{
	"/etc/systemd/network",
	"/run/systemd/network",
	"/usr/local/lib/systemd/network",
	"/usr/lib/systemd/network",
}

// Root is one unit directory: its content, and the path that messages and
// File.Path begin with. The FS may implement MaskFS or fs.ReadLinkFS, so that a
// link to /dev/null is seen. A nil FS is a directory that is absent.
type Root struct {
	Path string
	FS   fs.FS
}

// File is one file that a unit was read from.
type File struct {
	// Path is its path, "/etc/systemd/network/10-ib0.ibnetwork.d/mtu.conf".
	Path string
	// DropIn is false for the main file.
	DropIn bool
	// Refused is set for a drop-in of which nothing is used, because of an Error.
	Refused bool
	// Size and ModTime are as stat had them.
	Size    int64
	ModTime time.Time
	// Sum is of the content, Text the content itself.
	Sum  [sha256.Size]byte
	Text string
}

// Set is the result of one load: all units, ordered by file name, and all
// problems. It is immutable.
type Set struct {
	Units []*Unit
	// Problems are those of all files, also of files that gave no unit, by
	// place.
	Problems []Problem
	// Skipped are the files that were found and not read: masked, or hidden by a
	// file of the same name in a directory of higher priority.
	Skipped []Skipped
	// Unread reports that a directory or a file could not be read for a reason that
	// may pass (no descriptor, no memory, an input error): Reload again later.
	Unread bool
	// Settles is when the first file that may be half written counts as complete
	// if it does not change: Reread again then. Zero if there is none.
	Settles time.Time

	// Tables are the address tables that units name, by path; see WithTables.
	Tables map[string]*AddressTable

	// listed are the names that each directory had, by path; pending are the files
	// that may be half written.
	listed  map[string][]string
	pending map[string]pending
}

// Skipped is a file that was found and gave no unit.
type Skipped struct {
	Name string
	Path string
	// Why is a sentence: "masked by /etc/systemd/network/10-ib0.ibnetwork".
	Why string
	// Masked is false for a hidden file.
	Masked bool
	// DropIn is set for a drop-in of the unit.
	DropIn bool
}

// Unit finds a unit by its file name, with or without the suffix; nil if there is
// none.
func (s *Set) Unit(name string) *Unit {
	if s == nil {
		return nil
	}
	for _, u := range s.Units {
		if u.Name == name || u.Name == name+Suffix {
			return u
		}
	}
	return nil
}

// Unusable is the path of the first unit file that has an error and gives no unit, empty
// for none.
func (s *Set) Unusable() string {
	if s == nil {
		return ""
	}
	for _, p := range s.Problems {
		if p.Severity == Error && strings.HasSuffix(p.Pos.File, Suffix) &&
			!slices.ContainsFunc(s.Units, func(u *Unit) bool { return u.Path == p.Pos.File }) {
			return p.Pos.File
		}
	}
	return ""
}
