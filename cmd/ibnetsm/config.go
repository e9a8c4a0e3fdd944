package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/cli"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
)

// maxConfigErrors bounds the mistakes of a configuration file that are reported.
const maxConfigErrors = 20

// byteOrderMark is what some editors begin a file in UTF-8 with.
const byteOrderMark = "\ufeff"

// keyOptions are the options of the configuration file that are secrets.
var keyOptions = []string{"sm-key", "sa-key", "m-key"}

// remember keeps the options that were given on the command line: they override those
// of the configuration file, each time that it is read.
func (o *options) remember(f *pflag.FlagSet) {
	o.given = map[string][]string{}
	f.Visit(func(g *pflag.Flag) {
		o.given[g.Name] = []string{g.Value.String()}
		if s, ok := g.Value.(pflag.SliceValue); ok {
			o.given[g.Name] = s.GetSlice()
		}
	})
}

// withConfig returns the options of the configuration file, overridden by those of the
// command line.
func (o options) withConfig() (options, error) {
	if o.configFile == "" {
		return o, nil
	}
	b, err := readSmall(o.configFile)
	if err != nil {
		return o, fmt.Errorf("--config: %w", err)
	}
	n := options{given: o.given}
	f := pflag.NewFlagSet("config", pflag.ContinueOnError)
	n.bind(f)
	secret, err := n.readConfig(o.configFile, b, f, o.given)
	if err != nil {
		return o, err
	}
	if st, err := os.Stat(o.configFile); secret && err == nil && st.Mode().Perm()&0o077 != 0 {
		return o, fmt.Errorf("%s: it has a key, and group or others may access it (mode %04o); run: chmod 0600 %s", o.configFile,
			st.Mode().Perm(), o.configFile)
	}
	for name, values := range o.given {
		g := f.Lookup(name)
		if g == nil {
			continue // of the command, not of a manager
		}
		if s, ok := g.Value.(pflag.SliceValue); ok {
			err = s.Replace(values)
		} else {
			err = g.Value.Set(values[0])
		}
		if err != nil {
			return o, fmt.Errorf("--%s: %w", name, err)
		}
	}
	return n, nil
}

// readConfig sets the options of lines "name = value", apart from those that are given
// otherwise; # at the beginning of a line begins a comment. All mistakes are returned
// together, each with its place, values out of range among them. secret reports whether
// one of the options is a key.
func (o *options) readConfig(file string, b []byte, f *pflag.FlagSet, given map[string][]string) (secret bool, err error) {
	var errs []error
	seen := map[string]int{}
	n := 0
	for line := range bytes.Lines(bytes.TrimPrefix(b, []byte(byteOrderMark))) {
		n++
		text := strings.TrimRight(string(line), "\r\n")
		key := strings.TrimLeft(text, " \t")
		col := len(text) - len(key) + 1
		if key == "" || key[0] == '#' {
			continue
		}
		fail := func(col int, format string, args ...any) {
			if len(errs) < maxConfigErrors {
				errs = append(errs, fmt.Errorf("%s:%d:%d: %s", file, n, col, fmt.Sprintf(format, args...)))
			}
		}
		key, rest, ok := strings.Cut(key, "=")
		name, value := strings.TrimSpace(key), strings.TrimSpace(rest)
		at := col + len(key) + 1 + len(rest) - len(strings.TrimLeft(rest, " \t"))
		flag := f.Lookup(name)
		switch {
		case !ok:
			fail(col, "want name = value")
			continue
		case name == "config" || flag == nil:
			fail(col, "no option %q; `ibnetsm run --help` lists them, without --", ib.Clip(name))
			continue
		}
		secret = secret || slices.Contains(keyOptions, name)
		slice, many := flag.Value.(pflag.SliceValue)
		if was := seen[name]; was != 0 && !many {
			fail(col, "%s is set in line %d already", name, was)
			continue
		}
		seen[name] = n
		was, good := *o, o.check() == nil
		if err := setOption(flag, slice, value, given[name] != nil); err != nil {
			*o = was
			if slices.Contains(keyOptions, name) {
				err = errors.New("not a 64 bit number such as 0x0123456789abcdef") // no key in a log
			}
			fail(at, "%s: %v", name, err)
		} else if err := o.check(); good && err != nil {
			*o = was // for the range of the next one
			if given[name] == nil {
				fail(at, "%v", err)
			}
		}
	}
	return secret, errors.Join(errs...)
}

// setOption sets an option to a value of the file; one that is given on the command line
// is only tried.
func setOption(flag *pflag.Flag, slice pflag.SliceValue, value string, given bool) error {
	switch {
	case flag.Value.Type() == "bool" && value == "yes":
		value = "true"
	case flag.Value.Type() == "bool" && value == "no":
		value = "false"
	case flag.Value.Type() == "bool" && value != "true" && value != "false":
		return fmt.Errorf("%q is neither yes nor no", ib.Clip(value))
	}
	if slice == nil { // the command line is applied after the file
		err := flag.Value.Set(value)
		if what := cli.Wanted(flag); err != nil && what != "" {
			return fmt.Errorf("%q is not %s", ib.Clip(value), what)
		}
		return err
	}
	values := []string{value}
	if flag.Value.Type() == "stringSlice" {
		values = strings.Split(value, ",") // as on the command line
	}
	for _, v := range values {
		if v = strings.TrimSpace(v); v == "" {
			return errors.New("no value")
		}
		if given {
			continue
		}
		if err := slice.Append(v); err != nil {
			return err
		}
	}
	return nil
}

// atStart are the options that a running manager cannot change and engine.Config does
// not have.
func (o *options) atStart() any {
	return []any{o.transport, o.guids, o.devices, o.logFile, o.logJSON, o.stateDir, o.socket, o.waitPort}
}

// sameStart reports whether two sets of options differ only in what can be applied, or
// compared, by their engine.Config.
func sameStart(a, b *options) bool { return reflect.DeepEqual(a.atStart(), b.atStart()) }

func verifyCmd() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "verify", Short: "check the configuration of run, without running it", Args: cobra.NoArgs,
		Long: `Takes the options of run, and reads the files that they name: configuration,
settings, keys, partitions. Prints the mistakes, and exits with status 1 if
there is one.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.remember(cmd.Flags())
			return verify(&o, cmd.OutOrStdout())
		},
	}
	o.bind(c.Flags())
	return c
}

// verify reads all that run does before it opens a port.
func verify(o *options, out io.Writer) error {
	now, err := o.withSettings()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler) // what it has is in the errors, and in those below
	_, settings := now.config(log)
	_, names := now.readNames()
	if names != nil {
		names = fmt.Errorf("--node-name-map: %w", names)
	}
	_, ports := now.manager(log)
	engines := route.CheckEngines(now.routing)
	if engines != nil {
		engines = fmt.Errorf("--routing: %w", engines)
	}
	if err := errors.Join(settings, now.guidMistakes(), engines, names, ports, now.logMistake()); err != nil {
		return err
	}
	if p, err := now.readPolicy(); err == nil && p != nil {
		for _, n := range p.Notes {
			fmt.Fprintln(out, n)
		}
	}
	fmt.Fprintln(out, "no mistakes")
	return nil
}

// guidMistakes are the lines of files with GUIDs that run passes over with a warning; a file
// that cannot be read is a mistake of config.
func (o *options) guidMistakes() error {
	var errs []error
	for _, f := range []struct{ key, name string }{{"RootGUIDFile", o.roots}, {"CNGUIDFile", o.compute}, {"IOGUIDFile", o.io},
		{"HopWeightsFile", o.hops}, {"GUIDRoutingOrderFile", o.order}, {"GUID2LIDFile", o.lids}, {"PrefixRoutesFile", o.prefixes}} {
		if f.name == "" {
			continue
		}
		if b, err := readAtMost(f.name, guidfile.MaxFileSize); err == nil {
			errs = append(errs, guidfile.Check(f.key, f.name, b))
		}
	}
	return errors.Join(errs...)
}

// logMistake returns why run cannot write its log, without making the file.
func (o *options) logMistake() error {
	if o.logFile == "" {
		return nil
	}
	f, err := os.OpenFile(o.logFile, os.O_APPEND|os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(o.logFile)
		if err = unix.Access(dir, unix.W_OK|unix.X_OK); err == nil {
			return nil
		}
		err = &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return fmt.Errorf("--log-file: %w", err)
}
