package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "0": 0, "300ms": 300 * time.Millisecond, "2m": 2 * time.Minute} {
		if d, err := ParseTime(text); err != nil || d != want {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "x", "-1s", "-5", "5 s", "1e400"} {
		if d, err := ParseTime(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

// What a user typed wrong is reported in words, with what is wanted.
func TestWrap(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--number x", `invalid argument "x" for --number: not a number from 0 to 255`},
		{"--number 300", `invalid argument "300" for --number: not a number from 0 to 255`},
		{"--level x", `invalid argument "x" for --level: not a number from 0 to 15`},
		{"--time x", `invalid argument "x" for --time: not a time such as 30, 30s or 300ms`},
		{"--flag=perhaps", `invalid argument "perhaps" for --flag: not yes or no`},
		{"--none", `unrecognized option "--none"; for a list: p --help`},
		{"-Z", `unrecognized option "-Z"; for a list: p --help`},
		{"sub 1 --none", `unrecognized option "--none"; for a list: p sub --help`},
		{"sub 1 --time", `option "--time" requires an argument`},
		{"--=x", "bad flag syntax: --=x"},
		{"xx", `unknown command "xx"; for a list: p --help`},
		{"nonne", `unknown command "nonne", did you mean "none"?`},
		{"help xyz", `unknown command "xyz"; for a list: p --help`},
		{"help sub", "<nil>"},
		{"", "<nil>"},
		{"sub", "no argument is given; usage: p sub PID"},
		{"sub 1 2", "2 arguments are given; usage: p sub PID"},
		{"sub 1 --time 5", "<nil>"},
		{"sub 1 --time 5 --level 3 --number 1", "--level and --number cannot be combined"},
		{"own x", `unknown kind "x"`},
		{"none x", "1 argument is given; usage: p none"},
	} {
		var n uint8
		var d time.Duration
		p := &cobra.Command{Use: "p", SilenceErrors: true, SilenceUsage: true}
		p.PersistentFlags().Uint8Var(&n, "number", 0, "")
		p.PersistentFlags().Uint8("level", 0, "`0..15`: the level")
		p.PersistentFlags().Bool("flag", false, "")
		TimeVar(p.PersistentFlags(), &d, "time", 0, "")
		sub := &cobra.Command{Use: "sub PID", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return nil }}
		p.AddCommand(sub)
		sub.MarkFlagsMutuallyExclusive("level", "number")
		p.AddCommand(&cobra.Command{Use: "own KIND", RunE: func(*cobra.Command, []string) error { return nil },
			Args: func(_ *cobra.Command, args []string) error { return fmt.Errorf("unknown kind %q", args[0]) }})
		p.AddCommand(&cobra.Command{Use: "none", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
		Wrap(p)
		p.SetOut(io.Discard)
		p.SetArgs(strings.Fields(c.args))
		if err := p.Execute(); fmt.Sprint(err) != c.want {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		} else if IsUsage(err) != (err != nil && err.Error() != `unknown kind "x"`) {
			t.Errorf("%s: a usage error: %v", c.args, IsUsage(err))
		}
	}
}
