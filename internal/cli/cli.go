// Package cli is what the command lines of the programs have in common: times, and the
// sentences about arguments and flags that cannot be used.
package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ibnetworkd/ib"
)

// ParseTime reads a time; as in unit files, a bare number is seconds.
func ParseTime(text string) (time.Duration, error) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("not a time such as 30, 30s or 300ms")
	}
	return d, nil
}

// span is a flag's time.
type span time.Duration

// TimeVar adds a flag of a time, in the form of ParseTime.
func TimeVar(f *pflag.FlagSet, d *time.Duration, name string, def time.Duration, usage string) {
	*d = def
	f.Var((*span)(d), name, usage)
}

// String implements pflag.Value.
func (s *span) String() string {
	if *s == 0 {
		return "0"
	}
	return time.Duration(*s).String()
}

// Type implements pflag.Value.
func (s *span) Type() string { return "duration" }

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	d, err := ParseTime(text)
	if err == nil {
		*s = span(d)
	}
	return err
}

// Wanted is what a flag takes, by the range such as 0..15 that its usage names or by its
// type, "" if its own error says so.
func Wanted(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	if from, to, ok := strings.Cut(name, ".."); ok {
		return "a number from " + from + " to " + to
	}
	return map[string]string{"bool": "yes or no", "uint8": "a number from 0 to 255", "uint16": "a number from 0 to 65535", "int": "a number",
		"duration": "a time such as 30, 30s or 300ms"}[f.Value.Type()]
}

// FlagError is a flag's error in words for users: without the texts of package strconv.
func FlagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f := bad.GetFlag()
	why := bad.Unwrap().Error()
	if want := Wanted(f); want != "" {
		why = "not " + want
	}
	return fmt.Errorf("invalid argument %q for --%s: %s", ib.Clip(bad.GetValue()), f.Name, why)
}

// Wrap makes a command and those below it report flags by FlagError, and a wrong number
// of arguments with their usage, by an error that fail makes. What a command itself
// reports of its arguments is kept.
func Wrap(c *cobra.Command, fail func(format string, args ...any) error) {
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return FlagError(err) })
	wrapArgs(c, fail)
}

func wrapArgs(c *cobra.Command, fail func(format string, args ...any) error) {
	counts := []string{"accepts ", "requires at least ", "unknown command "} // how cobra's own checks begin
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			what := fmt.Sprintf("%d arguments are", len(args))
			switch err := check(c, args); {
			case err == nil || !slices.ContainsFunc(counts, func(s string) bool { return strings.HasPrefix(err.Error(), s) }):
				return err
			case len(args) == 0:
				what = "no argument is"
			case len(args) == 1:
				what = "1 argument is"
			}
			_, takes, _ := strings.Cut(c.Use, " ")
			return fail("%s given; usage: %s", what, strings.TrimSpace(c.CommandPath()+" "+takes))
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub, fail)
	}
}
