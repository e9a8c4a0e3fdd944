package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
)

// polkitTimeout bounds an answer of polkit, or of the bus, that needs no password.
const polkitTimeout = 5 * time.Second

// authorize lets root do everything and asks polkit about others
// (org.freedesktop.PolicyKit1.Authority.CheckAuthorization). Any failure to get
// a yes is a no, with the reason.
func (c *caller) authorize(action string) error {
	uid := c.user.uid
	if uid == noUser {
		return busconn.Refusal(api.ErrAccessDenied, "the bus does not report the caller's user: try again")
	}
	if c.s.cfg.Privileged(uid) {
		return nil
	}
	release, err := acquire(c.s.asks)
	if err != nil {
		return err
	}
	defer release()
	interactive := c.msg.Flags&dbus.FlagAllowInteractiveAuthorization != 0
	timeout, flags := polkitTimeout, uint32(0)
	if interactive {
		timeout, flags = api.AskTimeout, 1
	}
	ctx, cancel := context.WithTimeout(c.conn.Context(), timeout)
	defer cancel()
	subject := struct {
		Kind    string
		Details map[string]dbus.Variant
	}{"system-bus-name", map[string]dbus.Variant{"name": dbus.MakeVariant(c.sender)}}
	var result struct {
		Authorized, Challenge bool
		Details               map[string]string
	}
	err = c.conn.Object("org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority").
		CallWithContext(ctx, "org.freedesktop.PolicyKit1.Authority.CheckAuthorization", 0,
			subject, action, map[string]string{}, flags, "").Store(&result)
	who := fmt.Sprintf("user %d", uid)
	denied := func(format string, a ...any) error {
		return busconn.Refusal(api.ErrAccessDenied, "only root may do this (%s): %s", action, fmt.Sprintf(format, a...))
	}
	var de dbus.Error
	switch {
	case errors.As(err, &de) && slices.Contains(notInstalled, de.Name):
		return denied("polkit is not installed, so it cannot permit %s: use sudo", who)
	case err != nil:
		return denied("polkit failed to decide about %s: %v", who, err)
	case result.Authorized:
		return nil
	case result.Challenge && !interactive:
		return busconn.Refusal("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
			"%s needs a password for %s, and the call does not allow interactive authorization", who, action)
	case result.Challenge:
		return denied("polkit requires a password of %s and no polkit agent runs to ask for it: use sudo", who)
	}
	return denied("polkit does not permit %s", who)
}

// notInstalled are the errors of the bus for a service that does not exist.
var notInstalled = []string{"org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
	"org.freedesktop.DBus.Error.Spawn.ServiceNotFound"}
