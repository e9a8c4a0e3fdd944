package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"ibnetworkd/internal/cli/clitest"
)

func TestCommands(t *testing.T) { clitest.Check(t, (&app{}).command()) }

// Arguments are checked before the daemon is needed, and the next step has its own line.
func TestWithoutDaemon(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
	for args, want := range map[string]string{
		"log-level foo": "ibnetctl: \"foo\" is not a log level; write debug, info, warn or error\n",
		"log-level":     "\nnext: " + startDaemon() + "\n",
		"reload":        "\nnext: " + startDaemon() + "\n",
	} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), strings.Fields(args), nil, &out, &errs); code == 0 || !strings.HasSuffix(errs.String(), want) {
			t.Errorf("%s: exit %d, %q, want %q", args, code, errs.String(), want)
		}
	}
}

// An end by a signal is not reported in the words of package context.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	run(ctx, []string{"--root", t.TempDir(), "wait-online", "--timeout", "5"}, nil, &out, &errs)
	if errs.String() != "ibnetctl: interrupted\n" {
		t.Errorf("%q", errs.String())
	}
}
