// Package version says which build this is. The Makefile sets Version; a build
// without it takes what the Go toolchain recorded.
package version

import "runtime/debug"

// Version is set by the linker: -X ibnetworkd/internal/version.Version=1.2.3.
var Version = ""

// String is the release, or the commit that the toolchain recorded, or "devel".
func String() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	var rev, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			rev = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+"
		}
	}
	if rev == "" {
		return "devel"
	}
	return "devel-" + rev + dirty
}
