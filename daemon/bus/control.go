package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
)

// Control calls a method of the manager for a user who is known without a bus. The methods,
// bounds and errors are those of the bus, for privileged users only: nothing asks polkit.
func (s *Server) Control(ctx context.Context, uid uint32, call api.ControlCall) api.ControlAnswer {
	out, err := s.control(ctx, uid, call)
	if err == nil {
		return api.ControlAnswer{Values: out}
	}
	var de *dbus.Error
	if errors.As(err, &de) {
		return api.ControlAnswer{Error: de.Name, Text: fmt.Sprint(de.Body...)}
	}
	return api.ControlAnswer{Error: api.ErrFailed, Text: err.Error()}
}

func (s *Server) control(ctx context.Context, uid uint32, call api.ControlCall) ([]string, error) {
	if !s.cfg.Privileged(uid) {
		return nil, busconn.Refusal(api.ErrAccessDenied, "without the system bus only root may do this, not user %d: use sudo", uid)
	}
	body := make([]any, len(call.Arguments))
	for i, arg := range call.Arguments {
		body[i] = arg
	}
	c := &caller{s: s, path: api.Root, ctx: ctx, user: user{uid: uid, privileged: true},
		msg: &dbus.Message{Type: dbus.TypeMethodCall, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...))}}}
	defer c.release()
	f, err := c.find(call.Interface, call.Method)
	if err != nil {
		return nil, err
	}
	out, err := f(c)
	if err != nil {
		return nil, err
	}
	values := []string{}
	for _, v := range out {
		if variant, ok := v.(dbus.Variant); ok {
			v = variant.Value()
		}
		text, ok := v.(string)
		if !ok {
			return nil, busconn.Refusal(api.ErrFailed, "the answer of %s is not a string: call it on the system bus", call.Method)
		}
		values = append(values, text)
	}
	return values, nil
}
