package busconn

import "strings"

// The bus itself: no other member can have its name as sender.
const (
	busName = "org.freedesktop.DBus"
	busPath = "/org/freedesktop/DBus"
)

// owners are the owners' unique names by the well-known names whose signals a
// connection believes, "" for a name without an owner.
type owners map[string]string

// believed reports whether a signal is accepted. Any member can send a signal of any
// interface and path to a connection's unique name, regardless of match rules; the
// bus authenticates the sender only. The sender has to own the well-known name that
// the signal's path belongs to.
func (o owners) trusted(sender, path, iface string) bool {
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
