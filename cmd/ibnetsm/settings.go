package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/cli"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/qos/policy"
)

// maxSettings bounds in bytes what is read of a settings or keys file.
const maxSettings = 4 << 20

// settings are the keys of --settings, those of [SubnetManager] in a unit file.
var settings = map[string]func(o *options, value string) error{
	"Priority":             func(o *options, v string) error { return parse(&o.priority, v, 8) },
	"SubnetPrefix":         func(o *options, v string) error { return parse(&o.prefix, v, 64) },
	"LMC":                  func(o *options, v string) error { return parse(&o.lmc, v, 8) },
	"MKeyProtect":          func(o *options, v string) error { return parse(&o.protect, v, 8) },
	"MKeyLeaseSec":         leaseSetting,
	"RoutingEngine":        text(func(o *options) *string { return &o.routing }),
	"PartitionEnforcement": text(func(o *options) *string { return &o.enforce }),
	"KeyFile":              text(func(o *options) *string { return &o.keysFile }),
	"NodeNameMap":          text(func(o *options) *string { return &o.names }),
	"PartitionsFile":       text(func(o *options) *string { return &o.partitions }),
	"Partition":            func(o *options, v string) error { o.rules = append(o.rules, v); return nil },
	"QoSPolicyFile":        text(func(o *options) *string { return &o.policy }),
	"RootGUIDFile":         text(func(o *options) *string { return &o.roots }),
	"CNGUIDFile":           text(func(o *options) *string { return &o.compute }),
	"IOGUIDFile":           text(func(o *options) *string { return &o.io }),
	"HopWeightsFile":       text(func(o *options) *string { return &o.hops }),
	"GUID2LIDFile":         text(func(o *options) *string { return &o.lids }),
	"GUIDRoutingOrderFile": text(func(o *options) *string { return &o.order }),
	"PrefixRoutesFile":     text(func(o *options) *string { return &o.prefixes }),
	"QoS":                  boolean(func(o *options) *bool { return &o.qos }),
	"Verbose":              boolean(func(o *options) *bool { return &o.verbose }),
	"SweepSec":             duration(func(o *options) *time.Duration { return &o.sweep }),
	"PollSec":              duration(func(o *options) *time.Duration { return &o.poll }),
	"Reregister":           text(func(o *options) *string { return &o.reregister }),
	"TimeoutSec":           duration(func(o *options) *time.Duration { return &o.timeout }),
	"Retries":              count(func(o *options) *int { return &o.retries }),
	"Window":               count(func(o *options) *int { return &o.window }),
}

func parse[T ~uint8 | ~uint16 | ~uint64](to *T, v string, bits int) error {
	n, err := strconv.ParseUint(v, 0, bits)
	if err != nil {
		return fmt.Errorf("%q is not a number of %d bits", v, bits)
	}
	*to = T(n)
	return nil
}

func leaseSetting(o *options, v string) error {
	d, err := cli.ParseTime(v)
	if err != nil || d > 65535*time.Second {
		return fmt.Errorf("%q is not a time from 0 to 65535 s", v)
	}
	o.lease = uint16(d / time.Second)
	return nil
}

func text(field func(*options) *string) func(*options, string) error {
	return func(o *options, v string) error { *field(o) = v; return nil }
}

func boolean(field func(*options) *bool) func(*options, string) error {
	return func(o *options, v string) error {
		if v != "yes" && v != "no" {
			return fmt.Errorf("%q is neither yes nor no", v)
		}
		*field(o) = v == "yes"
		return nil
	}
}

func duration(field func(*options) *time.Duration) func(*options, string) error {
	return func(o *options, v string) (err error) {
		*field(o), err = cli.ParseTime(v)
		return err
	}
}

func count(field func(*options) *int) func(*options, string) error {
	return func(o *options, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a number", v)
		}
		*field(o) = n
		return nil
	}
}

// withSettings returns the options, with those of the configuration file, overridden by
// those of the settings file, with the keys of the key file.
func (o options) withSettings() (options, error) {
	o, err := o.withConfig()
	if err != nil {
		return o, err
	}
	o.rules = append([]string(nil), o.rules...)
	if name, optional := strings.CutPrefix(o.settings, "-"); name != "" {
		b, err := readSmall(name)
		switch {
		case optional && errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return o, fmt.Errorf("--settings: %w", err)
		default:
			if err := o.readSettings(name, b); err != nil {
				return o, err
			}
		}
	}
	return o, o.readKeys()
}

// readSettings reads lines Key=value; # begins a comment. Sections other than
// [SubnetManager] are ignored, and so are unknown keys: the daemon that wrote the
// file may be newer. All mistakes are returned together, each with its place.
func (o *options) readSettings(name string, b []byte) error {
	var errs []error
	skip, n := false, 0
	for raw := range bytes.Lines(bytes.TrimPrefix(b, []byte(byteOrderMark))) {
		n++
		text := strings.TrimRight(string(raw), " \t\r\n")
		line := strings.TrimLeft(text, " \t")
		col := len(text) - len(line) + 1
		fail := func(col int, format string, args ...any) {
			if len(errs) < maxConfigErrors {
				errs = append(errs, fmt.Errorf("%s:%d:%d: %s", name, n, col, fmt.Sprintf(format, args...)))
			}
		}
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			skip = line != "[SubnetManager]"
			continue
		case skip:
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			fail(col, "want Key=value")
			continue
		}
		set, was, good := settings[key], *o, o.check() == nil
		if set == nil {
			continue
		}
		err := set(o, value)
		if err == nil && good {
			err = o.check()
		}
		if err != nil {
			*o = was // for the range of the next one
			fail(col+len(key)+1, "%s=: %v", key, err)
		}
	}
	return errors.Join(errs...)
}

// credential is the name of the systemd credential with the keys.
const credential = "keys"

// readKeys reads the M_Key, the SM_Key and the SA key from a file that only its owner
// may read, or from the systemd credential if there is one.
func (o *options) readKeys() error {
	name, mine := o.keysFile, true
	if name == "" {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return nil
		}
		// systemd restricts access: mode 0400 or 0440, with an access control list.
		name, mine = filepath.Join(dir, credential), false
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	b, err := readSmall(name)
	if err != nil {
		return err
	}
	if st, err := os.Stat(name); mine && err == nil && st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: group or others may access it (mode %04o); run: chmod 0600 %s", name, st.Mode().Perm(), name)
	}
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		to := map[string]*uint64{"MKey": &o.mKey, "SMKey": &o.smKey, "SAKey": &o.saKey}[strings.TrimSpace(key)]
		if to == nil {
			return fmt.Errorf("%s:%d: want MKey=, SMKey= or SAKey=", name, i+1)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 0, 64)
		if err != nil {
			// Not the value: errors go to the journal.
			return fmt.Errorf("%s:%d: %s= is not a 64 bit number such as 0x0123456789abcdef", name, i+1, strings.TrimSpace(key))
		}
		*to = n
	}
	return nil
}

// readSmall reads a regular file of bounded size.
func readSmall(name string) ([]byte, error) { return readAtMost(name, maxSettings) }

func readAtMost(name string, most int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, most)
	}
	return b, err
}

// errPartitions is an error in the partitions only: everything else can be used.
type errPartitions struct{ error }

func (e errPartitions) Unwrap() error { return e.error }

// errOptional is an error in a file without which a manager can start.
type errOptional struct {
	error
	what, instead string // of the file; what is done without
}

func (e errOptional) Unwrap() error { return e.error }

// readGUIDs reads a file in a form of opensm's. Lines that cannot be used are logged.
func readGUIDs[T any](log *slog.Logger, name string, parse func(string, []byte) ([]T, error)) ([]T, error) {
	if name == "" {
		return nil, nil
	}
	b, err := readAtMost(name, guidfile.MaxFileSize)
	if err != nil {
		return nil, err
	}
	out, err := parse(name, b)
	for _, err := range split(err) {
		log.Warn("a line is not used as it is", "err", err)
	}
	return out, nil
}

// split is the errors that were joined in one, none for nil.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// readPolicy reads the QoS policy, nil for none.
func (o *options) readPolicy() (*policy.Policy, error) {
	if o.policy == "" {
		return nil, nil
	}
	b, err := readAtMost(o.policy, policy.MaxFileSize)
	if err != nil {
		return nil, err
	}
	return policy.Parse(o.policy, b)
}

// readPartitions reads the partitions file and the rules after it.
func (o *options) readPartitions() (partition.Config, error) {
	var rules []partition.Partition
	for _, s := range o.rules {
		r, err := partition.ParseRule(s)
		if err != nil {
			return partition.Config{}, fmt.Errorf("--partition %q: %w", s, err)
		}
		rules = append(rules, r)
	}
	if o.partitions == "" {
		return partition.Rules(rules...), nil
	}
	b, err := readAtMost(o.partitions, partition.MaxFileSize)
	if err != nil {
		return partition.Config{}, err
	}
	c, err := partition.Parse(o.partitions, b)
	if err != nil {
		return partition.Config{}, err
	}
	c.Merge(rules...)
	return c, nil
}

// lastGood is the file with the partitions that were used last, for a start with a
// partitions file that cannot be used.
func (o *options) lastGood() string {
	dir := o.stateFolder()
	if dir == "" {
		return ""
	}
	name := strings.NewReplacer("/", "-", ",", "-").Replace(strings.Join(append(append([]string(nil), o.guids...), o.devices...), ","))
	name = cmp.Or(name, "all")
	return filepath.Join(dir, "partitions-"+name)
}

// keepGood saves the partitions file that is in use, and removes the saved one if
// none is.
func (o *options) keepGood() error {
	name := o.lastGood()
	if name == "" {
		return nil
	}
	if o.partitions == "" {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := readAtMost(o.partitions, partition.MaxFileSize)
	if err != nil {
		return err
	}
	if old, err := readAtMost(name, partition.MaxFileSize); err == nil && bytes.Equal(old, b) {
		return nil
	}
	return fileStore(name).Save(b)
}

// fallBack returns the partitions for a start with a file that cannot be used, those
// of the last good file or the default partition and the rules, and says which.
func (o *options) fallBack() (partition.Config, string) {
	last := *o
	if last.partitions = o.lastGood(); last.partitions != "" {
		if c, err := last.readPartitions(); err == nil {
			return c, "the last good partitions file is used"
		}
	}
	last.partitions = ""
	if c, err := last.readPartitions(); err == nil && len(o.rules) > 0 {
		return c, "the default partition and --partition or Partition= are used"
	}
	return partition.Default(), "only the default partition is used"
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}
