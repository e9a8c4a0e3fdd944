package busconn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Refusal is the error that answers a call.
func Refusal(name, format string, a ...any) *dbus.Error {
	return dbus.NewError(name, []any{Clean(fmt.Sprintf(format, a...))})
}

// Clean makes text from the kernel, files and callers fit for the bus, which
// drops a connection that sends anything but UTF-8 without zero bytes.
func Clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?") }

// Reply is the answer to a call of a sender, which is "" without a bus between:
// values, or an error.
func Reply(sender string, serial uint32, body []any, err error) *dbus.Message {
	m := &dbus.Message{Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(serial)}}
	if err != nil {
		var de *dbus.Error
		if !errors.As(err, &de) {
			de = dbus.MakeFailedError(err)
		}
		m.Type, m.Body = dbus.TypeError, de.Body
		m.Headers[dbus.FieldErrorName] = dbus.MakeVariant(de.Name)
	}
	if sender != "" {
		m.Headers[dbus.FieldDestination] = dbus.MakeVariant(sender)
	}
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	return m
}
