package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
)

// connectSocket finds the daemon on its socket, where the bus has failed with noBus.
func connectSocket(socket string, noBus error) (*client, error) {
	conn, err := net.Dial("unix", socket)
	switch {
	case err == nil:
		_ = conn.Close() // a connection is one call
		return &client{socket: socket, close: func() {}}, nil
	case errors.Is(err, fs.ErrPermission) && running("ibnetworkd"):
		return nil, fail(exitDenied, "%w; ibnetworkd runs, and without the system bus only root may call it: use sudo", noBus)
	case running("ibnetworkd"):
		return nil, fmt.Errorf("ibnetworkd runs and cannot be called: %w; %w", noBus, err)
	case errors.Is(noBus, errNotRunning):
		return nil, noBus
	}
	return nil, fmt.Errorf("%w (%w)", errNotRunning, noBus)
}

// needed is the error of what cannot be done without a connection, with the next step.
func needed(err error) error {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return err
	case errors.Is(err, errNotRunning):
		return &exitError{exitNotRunning, fmt.Errorf("%w\nnext: %s", err, startDaemon())}
	}
	return &exitError{exitNotRunning, err}
}

// startDaemon is how the daemon is started on this host; sd_booted(3).
func startDaemon() string {
	if _, err := os.Lstat("/run/systemd/system"); err == nil {
		return "systemctl start ibnetworkd"
	}
	return "start ibnetworkd with the service manager of this host"
}

// callSocket makes one call on the daemon's socket.
func callSocket(ctx context.Context, socket, method string, ret, args []any) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("call ibnetworkd: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	dot := strings.LastIndexByte(method, '.')
	call := api.ControlCall{Interface: method[:dot], Method: method[dot+1:]}
	for _, arg := range args {
		call.Arguments = append(call.Arguments, fmt.Sprint(arg))
	}
	if err := json.NewEncoder(conn).Encode(call); err != nil {
		return fmt.Errorf("call ibnetworkd: %w", err)
	}
	var answer api.ControlAnswer
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("call ibnetworkd: no answer: %w", err)
	}
	if answer.Error != "" {
		return dbus.Error{Name: answer.Error, Body: []any{answer.Text}}
	}
	if len(answer.Values) != len(ret) {
		return fmt.Errorf("%s of ibnetworkd has %d values, %d are expected: install the ibnetctl of the daemon's version", method,
			len(answer.Values), len(ret))
	}
	for i, v := range answer.Values {
		switch to := ret[i].(type) {
		case *string:
			*to = v
		case *dbus.Variant:
			*to = dbus.MakeVariant(v)
		default:
			return fmt.Errorf("%s: %T is not a string", method, to)
		}
	}
	return nil
}
