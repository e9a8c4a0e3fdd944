package main

import (
	"strings"
	"testing"

	"ibnetworkd/internal/cli/clitest"
)

func TestCommands(t *testing.T) { clitest.Check(t, rootCmd()) }

// What was typed wrong is reported in words, and a name that no engine has is refused.
func TestWrongArguments(t *testing.T) {
	for args, want := range map[string]string{
		"reload":                   "no argument is given; usage: ibnetsm reload PID",
		"run --priority x":         `invalid argument "x" for --priority: not a number from 0 to 15`,
		"run --sweep 5x":           `invalid argument "5x" for --sweep: not a time such as 30, 30s or 300ms`,
		"run --poll=-1s":           `invalid argument "-1s" for --poll: not a time such as 30, 30s or 300ms`,
		"run --sa-key x":           `invalid argument "x" for --sa-key: not a 64 bit number such as 0x0123456789abcdef`,
		"run --config /nonexist":   "--config: open /nonexist: no such file or directory",
		"run --settings /nonexist": "--settings: open /nonexist: no such file or directory",
		"run --routing ftree,foo":  `--routing: routing engine "foo" is unknown; known are minhop, updn, ftree, dor, layered`,
	} {
		c := rootCmd()
		c.SetArgs(strings.Fields(args))
		if err := c.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
