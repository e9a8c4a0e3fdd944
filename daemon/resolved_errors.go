package daemon

import (
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/link"
)

// classifyDNS decides about an answer of systemd-resolved. Whatever it is, the
// link itself is configured: the reason is shown, and the call is repeated.
func classifyDNS(name string, err error) (verdict, link.Reason) {
	say := func(next, format string, a ...any) link.Reason {
		return link.Reason{Code: link.CodeResolved, Text: "systemd-resolved: " + fmt.Sprintf(format, a...), Next: next}
	}
	var e dbus.Error
	if !errors.As(err, &e) {
		return verdictRetry, say("systemctl status systemd-resolved", "the name servers of %s were not accepted (%v)", name, err)
	}
	switch e.Name {
	case "org.freedesktop.resolve1.LinkBusy":
		return verdictGiveUp, say("write DNS= and Domains= into the .network file, or take "+name+" from systemd-networkd there: Unmanaged=yes",
			"%s is managed by systemd-networkd, whose name servers have precedence (%s)", name, e.Error())
	case "org.freedesktop.resolve1.NoSuchLink":
		return verdictRetry, say("resolvectl status "+name, "it does not know %s yet (%s)", name, e.Error())
	case "org.freedesktop.DBus.Error.UnknownMethod":
		return verdictGiveUp, say("update systemd (SetLinkDNSEx came with version 246), or write the name servers into /etc/resolv.conf",
			"this version lacks a method that the keys of %s need (%s)", name, e.Error())
	case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return verdictGiveUp, say("run ibnetworkd as root, as its service does; busctl status shows whose messages the bus accepts",
			"not permitted to set the name servers of %s (%s)", name, e.Error())
	case "org.freedesktop.DBus.Error.InvalidArgs", "org.freedesktop.DBus.Error.NotSupported":
		return verdictGiveUp, say("correct DNS=, Domains= or the key that the message names", "it refuses a value for %s (%s)", name, e.Error())
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.NoReply":
		return verdictRetry, say("systemctl status systemd-resolved", "it went away before it took the name servers of %s (%s)", name, e.Error())
	}
	return verdictRetry, say("journalctl -u systemd-resolved", "the name servers of %s were not accepted (%v)", name, err)
}
