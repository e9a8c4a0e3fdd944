package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
)

// polkitTimeout is the time that polkit, or the bus, may take when it asks nobody.
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
	give, err := take(c.s.asks)
	if err != nil {
		return err
	}
	defer give()
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
		CallWithContext(ctx, "org.freedesktop.PolicyKit1.Authority.CheckAuthorization", 0, subject, action, map[string]string{}, flags, "").Store(&result)
	who := fmt.Sprintf("user %d", uid)
	switch {
	case err != nil:
		var de dbus.Error
		if errors.As(err, &de) && (de.Name == "org.freedesktop.DBus.Error.ServiceUnknown" || de.Name == "org.freedesktop.DBus.Error.NameHasNoOwner" || de.Name == "org.freedesktop.DBus.Error.Spawn.ServiceNotFound") {
			return busconn.Refusal(api.ErrAccessDenied, "only root may do this (%s): polkit is not installed, so nobody can say whether %s may. Try sudo", action, who)
		}
		return busconn.Refusal(api.ErrAccessDenied, "only root may do this (%s): polkit was asked whether %s may, and failed: %v", action, who, err)
	case result.Authorized:
		return nil
	case result.Challenge && !interactive:
		return busconn.Refusal("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", "%s must show a password for %s, and the caller did not allow to ask for it", who, action)
	}
	if result.Challenge {
		return busconn.Refusal(api.ErrAccessDenied, "only root may do this (%s): polkit wants a password of %s and there is nobody to ask for it (no polkit agent). Try sudo", action, who)
	}
	return busconn.Refusal(api.ErrAccessDenied, "only root may do this (%s): polkit says no to %s", action, who)
}
