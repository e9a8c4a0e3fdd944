package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A flag that takes a value has a name for it in the help, not a type of Go.
func TestHelpNamesValues(t *testing.T) {
	types := regexp.MustCompile(`--\S+ (string|strings|stringArray|int|uint|hex|duration)\b`)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if m := types.FindString(c.LocalFlags().FlagUsages()); m != "" {
			t.Errorf("%s: %s", c.CommandPath(), m)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).command())
}

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
