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

type span time.Duration

// TimeVar adds a flag of a time, in the form of ParseTime.
func TimeVar(f *pflag.FlagSet, d *time.Duration, name string, def time.Duration, usage string) {
	*d = def
	f.Var((*span)(d), name, usage)
}

func (s *span) String() string {
	if *s == 0 {
		return "0"
	}
	return time.Duration(*s).String()
}

func (s *span) Type() string { return "duration" }

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

// ExitUsage is the exit status of a program that was called in a wrong way; INVALIDARGUMENT in
// systemd.exec(5).
const ExitUsage = 2

// UsageError is an error in how a program was called: a flag, an argument or a command.
type UsageError struct{ text string }

// Error implements error.
func (e *UsageError) Error() string { return e.text }

func usageError(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// IsUsage reports whether err is or wraps a UsageError.
func IsUsage(err error) bool {
	var u *UsageError
	return errors.As(err, &u)
}

// FlagError returns a UsageError for an error of pflag in the flags of a command, in words for
// users: without the texts of package strconv.
func FlagError(command string, err error) error {
	var unknown *pflag.NotExistError
	var empty *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	option := func(name, shorthands string) string {
		if shorthands != "" {
			return "-" + name
		}
		return "--" + name
	}
	switch {
	case errors.As(err, &unknown):
		return usageError("unrecognized option %q; for a list: %s --help",
			ib.Clip(option(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames())), command)
	case errors.As(err, &empty):
		return usageError("option %q requires an argument", option(empty.GetSpecifiedName(), empty.GetSpecifiedShortnames()))
	case !errors.As(err, &bad):
		return &UsageError{err.Error()}
	}
	f := bad.GetFlag()
	why := bad.Unwrap().Error()
	if want := Wanted(f); want != "" {
		why = "not " + want
	}
	return usageError("invalid argument %q for --%s: %s", ib.Clip(bad.GetValue()), f.Name, why)
}

// HelpWidth is the number of columns that help fits.
const HelpWidth = 80

// Wrap gives a command and those below it what the programs have in common: help of HelpWidth
// columns, and a UsageError for a flag, a number of arguments or a command that cannot be used.
// What a command itself reports of its arguments is kept.
func Wrap(c *cobra.Command) {
	c.SetUsageTemplate(strings.NewReplacer(".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", HelpWidth),
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}").Replace(c.UsageTemplate()))
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return FlagError(c.CommandPath(), err) })
	c.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "explain a command", Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			found, rest, err := c.Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(found, rest)
			}
			if err != nil {
				return err
			}
			return found.Help()
		}})
	wrapArgs(c)
}

// unknownCommand returns the error of a command that has subcommands and was given arguments, nil
// without arguments.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2 // cobra's default, which SuggestionsFor does not set
	if near := c.SuggestionsFor(args[0]); len(args[0]) > 2 && len(near) > 0 {
		return usageError("unknown command %q, did you mean %q?", ib.Clip(args[0]), near[0])
	}
	return usageError("unknown command %q; for a list: %s --help", ib.Clip(args[0]), c.CommandPath())
}

// ArgumentsError is the error of a command that does not take n arguments.
func ArgumentsError(n int, usage string) error {
	what := fmt.Sprintf("%d arguments are", n)
	switch n {
	case 0:
		what = "no argument is"
	case 1:
		what = "1 argument is"
	}
	return usageError("%s given; usage: %s", what, usage)
}

func wrapArgs(c *cobra.Command) {
	if c.HasSubCommands() {
		c.Args, c.RunE = unknownCommand, func(c *cobra.Command, _ []string) error { return c.Help() }
	} else {
		check := c.Args
		if check == nil {
			check = cobra.ArbitraryArgs
		}
		counts := []string{"accepts ", "requires at least ", "unknown command "} // how cobra's own checks begin
		c.Args = func(c *cobra.Command, args []string) error {
			if err := c.ValidateFlagGroups(); err != nil { // ends with "; [file port] were all set"
				_, set, _ := strings.Cut(err.Error(), "; [")
				set, exclude := strings.CutSuffix(set, "] were all set")
				if !exclude {
					return usageError("%v", err)
				}
				return usageError("--%s cannot be combined", strings.ReplaceAll(set, " ", " and --"))
			}
			err := check(c, args)
			if err == nil || !slices.ContainsFunc(counts, func(s string) bool { return strings.HasPrefix(err.Error(), s) }) {
				return err
			}
			_, takes, _ := strings.Cut(c.Use, " ")
			return ArgumentsError(len(args), strings.TrimSpace(c.CommandPath()+" "+takes))
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// Parens is a remark that follows a word, or "".
func Parens(remark string) string {
	if remark == "" {
		return ""
	}
	return " (" + remark + ")"
}
