package busconn

import "strings"

// The bus itself: no other member can have its name as sender.
const (
	busName = "org.freedesktop.DBus"
	busPath = "/org/freedesktop/DBus"
)

// owners are the unique names that own the well-known names which a connection
// believes, "" for one that has no owner.
type owners map[string]string

// believed reports whether a signal is to be believed. Anybody may send a signal
// of any interface and path to a connection's unique name, past all match rules;
// the bus vouches for the sender only. A signal speaks for the name that its path
// is derived from, so its sender has to own that name.
func (o owners) believed(sender, path, iface string) bool {
	if sender == busName {
		return path == busPath && iface == busName
	}
	for name, owner := range o {
		root := "/" + strings.ReplaceAll(name, ".", "/")
		if rest, ok := strings.CutPrefix(path, root); ok && (rest == "" || rest[0] == '/') {
			return owner != "" && sender == owner
		}
	}
	return false
}
