// Package dist holds what an installation brings beside the programs and the
// documentation: units, rules, policies and hooks, as install.sh puts them into place.
package dist

import "embed"

// Files are these, by their names in this folder.
//
//go:embed dbus dracut initramfs-tools polkit prometheus systemd sysusers tmpfiles udev
var Files embed.FS
