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

// trusted reports whether a signal is accepted: its sender has to own the well-known name that
// the signal's path belongs to. Any member of the bus, which authenticates the sender only, can
// send a signal of any interface and path to a unique name, regardless of match rules.
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
