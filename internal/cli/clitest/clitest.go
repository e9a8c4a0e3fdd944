// Package clitest is what tests of the programs' command lines share.
package clitest

import (
	"regexp"
	"testing"

	"github.com/spf13/cobra"
)

// Check checks a command and those below it: a flag that takes a value has a name for it in
// the help, not a type of Go, and each name is that of one command.
func Check(t *testing.T, c *cobra.Command) {
	t.Helper()
	types := regexp.MustCompile(`--\S+ (string|strings|stringArray|int|uint|hex|duration)\b`)
	if m := types.FindString(c.LocalFlags().FlagUsages()); m != "" {
		t.Errorf("%s: %s", c.CommandPath(), m)
	}
	seen := map[string]bool{}
	for _, sub := range c.Commands() {
		if seen[sub.Name()] {
			t.Errorf("%s is there twice", sub.CommandPath())
		}
		seen[sub.Name()] = true
		Check(t, sub)
	}
}
