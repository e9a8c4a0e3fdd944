package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"ibnetworkd/ib"
	"ibnetworkd/internal/cli"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/serve"
)

// options are the flags of run, and what its settings file has in their place.
type options struct {
	transport  string
	guids      []string
	devices    []string
	priority   uint8
	smKey      uint64
	saKey      uint64
	mKey       uint64
	protect    uint8
	lease      uint16
	prefix     uint64
	lmc        uint8
	routing    string
	qos        bool
	names      string
	policy     string
	roots      string
	compute    string
	io         string
	hops       string
	order      string
	lids       string
	prefixes   string
	partitions string
	rules      []string
	enforce    string
	reregister string
	sweep      time.Duration
	poll       time.Duration
	window     int
	timeout    time.Duration
	retries    int
	logFile    string
	logJSON    bool
	verbose    bool
	stateDir   string
	socket     string
	settings   string
	keysFile   string
	waitPort   time.Duration
	configFile string
	given      map[string][]string // what the command line says, by the names of flags
}

// bind adds the flags of run to f, with the defaults.
func (o *options) bind(f *pflag.FlagSet) {
	o.smKey, o.saKey, o.prefix = 1, 1, ib.DefaultPrefix
	f.StringVar(&o.transport, "transport", "umad", "transport `NAME` of MADs: umad (the kernel) or ibsim (the simulator given by "+
		"IBSIM_SOCKNAME and SIM_HOST)")
	f.StringSliceVar(&o.guids, "port-guid", nil, "`GUID` of a port to manage; may be repeated (default: all InfiniBand ports)")
	f.StringSliceVar(&o.devices, "device", nil, "`DEVICE[/PORT]` to manage, such as mlx5_0 or mlx5_0/1; may be repeated")
	f.Uint8Var(&o.priority, "priority", 0, "`0..15`: the higher priority becomes master, then the lower port GUID")
	f.Var((*hex64)(&o.smKey), "sm-key", "`KEY` (SM_Key) that other managers must have for a handover; 0 trusts all. Use --keys-file: every "+
		"user can read the command line")
	f.Var((*hex64)(&o.saKey), "sa-key", "`KEY` (SM_Key) in SA requests that makes them trusted; see --keys-file")
	f.Var((*hex64)(&o.mKey), "m-key", "`KEY` (M_Key) that protects the ports, 0 for none; see --keys-file")
	f.Uint8Var(&o.protect, "m-key-protect", 1, "`0..3`: what the M_Key protects (IBA vol 1, 14.2.4.1); 0 lets every node read it")
	f.Uint16Var(&o.lease, "m-key-lease", 60, "`SECONDS` without a manager after which ports reveal their M_Key, 0 for never")
	f.Var((*hex64)(&o.prefix), "subnet-prefix", "`PREFIX`: the first 64 bits of all GIDs")
	f.Uint8Var(&o.lmc, "lmc", 0, "`0..7`: adapter ports get 2^LMC LIDs")
	f.StringVar(&o.routing, "routing", "auto", "routing `ENGINE`: auto, minhop, updn, ftree, dor or layered; of a list with commas the first "+
		"that fits the fabric")
	f.BoolVar(&o.qos, "qos", false, "program SL-to-VL mapping and VL arbitration, and use service levels in routing where that "+
		"shortens paths or relieves links (dor on tori, layered)")
	f.StringVar(&o.names, "node-name-map", "", "`FILE` with a node GUID and a name in double quotes on each line")
	f.StringVar(&o.policy, "qos-policy", "", "QoS policy `FILE`, in the format of opensm's qos-policy.conf")
	f.StringVar(&o.roots, "root-guid-file", "", "`FILE` with the GUIDs of the switches that are roots for ftree and updn, one a line, "+
		"as in opensm's root_guid_file")
	f.StringVar(&o.compute, "cn-guid-file", "", "`FILE` with the port GUIDs of compute nodes, one a line: routes are balanced for "+
		"these and I/O nodes alone")
	f.StringVar(&o.io, "io-guid-file", "", "`FILE` with the port GUIDs of I/O nodes, one a line: routes to them are balanced apart "+
		"from those to other ports")
	f.StringVar(&o.hops, "hop-weights-file", "", "`FILE` with lines of a switch's GUID, a port and what a hop by it counts in the "+
		"length of a path, 1 to 255")
	f.StringVar(&o.order, "guid-routing-order-file", "", "`FILE` with the port GUIDs of hosts in the order in which jobs number them, one a "+
		"line: routes to neighbours in it spread")
	f.StringVar(&o.lids, "guid2lid", "", "`FILE` of opensm with the LIDs of ports, read at the start; LIDs in --state-dir override it")
	f.StringVar(&o.prefixes, "prefix-routes-file", "", "`FILE` with the routers for GIDs of other subnets, as opensm's prefix-routes.conf")
	f.StringVar(&o.partitions, "partitions", "", "partitions `FILE`, in the format of opensm's partitions.conf")
	f.StringArrayVar(&o.rules, "partition", nil,
		"a `PARTITION`, such as '0x8001 Name=storage Members=ALL MTU=4096 Rate=100Gb/s', with spaces or semicolons; may be repeated")
	f.StringVar(&o.enforce, "part-enforce", "both", "`WHERE` switches check P_Keys when there are partitions besides the default "+
		"one: both, in, out or off")
	f.StringVar(&o.reregister, "reregister", "auto", "`WHICH` hosts register again after a takeover with a complete copy of what they "+
		"registered: auto, always or never")
	cli.TimeVar(f, &o.sweep, "sweep", 10*time.Second, "`TIME` between light sweeps, 0 for none")
	cli.TimeVar(f, &o.poll, "poll", 250*time.Millisecond, "`TIME` between a standby's polls of the master")
	f.IntVar(&o.window, "window", 32, "`NUMBER` of SMPs that may be outstanding")
	cli.TimeVar(f, &o.timeout, "timeout", 200*time.Millisecond, "`TIME` to wait for the response to an SMP")
	f.IntVar(&o.retries, "retries", 3, "`NUMBER` of times that an SMP is repeated, 0 to 50")
	f.StringVar(&o.logFile, "log-file", "", "append the log to `FILE` (default: standard error)")
	f.BoolVar(&o.logJSON, "log-json", false, "log in JSON")
	f.BoolVar(&o.verbose, "verbose", false, "log debug messages too")
	f.StringVar(&o.stateDir, "state-dir", "", "`DIR` for LIDs and the last good partitions (default: $STATE_DIRECTORY, or "+
		"/var/lib/ibnetsm; none with ibsim)")
	f.StringVar(&o.configFile, "config", "", "`FILE` with lines name = value, the names of these options without --; the command "+
		"line overrides it")
	f.StringVar(&o.settings, "settings", "",
		"`FILE` with lines Key=value, the keys of [SubnetManager] in ibnetwork(5); each overrides its option. -FILE may be missing")
	f.StringVar(&o.keysFile, "keys-file", "", "`FILE` of mode 0600 with lines MKey=, SMKey= and SAKey= (default: the systemd "+
		"credential \"keys\", if there is one)")
	cli.TimeVar(f, &o.waitPort, "wait-port", 0, "give up if no port could be opened for this `TIME`, 0 for never")
	f.StringVar(&o.socket, "socket", "", "`PATH` of the socket for the other commands, - for none (default: "+control.DefaultSocket+
		"; none with ibsim)")
}

// hex64 is a flag with a 64 bit number, printed in hexadecimal.
type hex64 uint64

func (h *hex64) String() string {
	if *h == 0 {
		return "0"
	}
	return fmt.Sprintf("%#x", uint64(*h))
}

// Set accepts what a settings file does: hexadecimal with 0x, or decimal.
func (h *hex64) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return errors.New("not a 64 bit number such as 0x0123456789abcdef")
	}
	*h = hex64(n)
	return nil
}

func (h *hex64) Type() string { return "hex" }

// check reports the first option that is out of range.
func (o *options) check() error {
	if o.priority > 15 {
		return fmt.Errorf("--priority %d: out of range, 0 to 15", o.priority)
	}
	if o.lmc > 7 {
		return fmt.Errorf("--lmc %d: out of range, 0 to 7", o.lmc)
	}
	if o.window < 1 || o.window > 4096 {
		return fmt.Errorf("--window %d: out of range, 1 to 4096", o.window)
	}
	if o.protect > 3 {
		return fmt.Errorf("--m-key-protect %d: out of range, 0 to 3", o.protect)
	}
	if o.saKey == 0 {
		return errors.New("--sa-key 0: 0 is the key of requests that are not trusted; set another")
	}
	if o.prefix == 0 {
		return errors.New("--subnet-prefix 0: not a prefix; the default is 0xfe80000000000000")
	}
	if o.timeout <= 0 || o.poll <= 0 {
		return fmt.Errorf("--timeout %v, --poll %v: must be greater than 0", o.timeout, o.poll)
	}
	if o.retries < 0 || o.retries > engine.RetriesMost {
		return fmt.Errorf("--retries %d: out of range, 0 to %d", o.retries, engine.RetriesMost)
	}
	return nil
}

// config checks the flags and reads the files that they name. Errors that are errPartitions
// or errOptional come joined, and what they are about has its default; any other comes alone.
func (o *options) config(log *slog.Logger) (engine.Config, error) {
	c := engine.Config{Priority: o.priority, SMKey: o.smKey, LMC: ib.LMC(o.lmc), Window: o.window, Timeout: o.timeout, Retries: o.retries,
		SA: sa.Config{SAKey: o.saKey}, Sweep: o.sweep, Poll: o.poll, Policy: program.DefaultPolicy()}
	if err := o.check(); err != nil {
		return c, err
	}
	if o.sweep <= 0 {
		c.Sweep = -1
	}
	if o.retries == 0 {
		c.Retries = -1
	}
	c.Policy.MKey, c.Policy.Prefix = ib.MKey(o.mKey), o.prefix
	if o.mKey != 0 {
		c.Policy.MKeyLease = o.lease
		c.Policy.Protect = o.protect
	}
	if o.routing != "auto" {
		c.Route.Engine = o.routing
	}
	var err error
	if c.Names, err = o.readNames(); err != nil {
		// Names are for display: the subnet works without them.
		log.Warn("node name map: not all names can be used", "err", err)
	}
	if o.qos {
		c.QoS = &qos.Options{}
	}
	if c.Enforce, err = pkey.ParseEnforcement(o.enforce); err != nil {
		return c, fmt.Errorf("--part-enforce %w", err)
	}
	if c.Reregister, err = engine.ParseReregister(o.reregister); err != nil {
		return c, fmt.Errorf("--reregister %w", err)
	}
	var soft []error
	if c.Partitions, err = o.readPartitions(); err != nil {
		soft = append(soft, errPartitions{err})
	}
	optional := func(err error, what, instead string) {
		if err != nil {
			soft = append(soft, errOptional{err, what, instead})
		}
	}
	// Paths without a service level are better than none, and so are others.
	c.QoSPolicy, err = o.readPolicy()
	optional(err, "QoS policy", "no QoS policy is used")
	if c.QoSPolicy != nil {
		for _, n := range c.QoSPolicy.Notes {
			log.Info("QoS policy", "note", n)
		}
	}
	const without = "routes are computed without it"
	c.Route.Roots, err = readGUIDs(log, o.roots, guidfile.ParseList)
	optional(err, "root switches", without)
	c.Route.Compute, err = readGUIDs(log, o.compute, guidfile.ParseList)
	optional(err, "compute nodes", without)
	c.Route.IO, err = readGUIDs(log, o.io, guidfile.ParseList)
	optional(err, "I/O nodes", without)
	c.Route.HopWeights, err = readGUIDs(log, o.hops, guidfile.ParseWeights)
	optional(err, "hop weights", without)
	c.Route.HostOrder, err = readGUIDs(log, o.order, guidfile.ParseList)
	optional(err, "order of hosts", without)
	c.LIDs, err = readGUIDs(log, o.lids, guidfile.ParseLIDs)
	optional(err, "LIDs of another manager", "only LIDs that ibnetsm has given are kept")
	c.PrefixRoutes, err = readGUIDs(log, o.prefixes, guidfile.ParsePrefixRoutes)
	optional(err, "prefix routes", "no paths to other subnets are given")
	return c, errors.Join(soft...)
}

// readNames reads the node name map. With an error, the names are those that can be
// used.
func (o *options) readNames() (names fabric.Names, err error) {
	if o.names == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.names)
	if err != nil {
		return nil, err
	}
	return fabric.ParseNames(o.names, b)
}

// manager returns the manager of the ports that the options select.
func (o *options) manager(log *slog.Logger) (*serve.Manager, error) {
	var guids []ib.GUID
	for _, s := range o.guids {
		g, err := ib.ParseGUID(s)
		if err != nil {
			return nil, fmt.Errorf("--port-guid: %w", err)
		}
		guids = append(guids, g)
	}
	wanted := func(p serve.Port) bool {
		if len(guids)+len(o.devices) == 0 {
			return true
		}
		return slices.Contains(guids, p.GUID) || slices.Contains(o.devices, p.Device) ||
			slices.Contains(o.devices, fmt.Sprintf("%s/%d", p.Device, p.Num))
	}
	switch o.transport {
	case "ibsim":
		return &serve.Manager{Host: simHost{}, Number: 1}, nil
	case "umad":
		number := len(guids) + len(o.devices)
		if slices.ContainsFunc(o.devices, func(d string) bool { return !strings.Contains(d, "/") }) {
			number = 0 // all ports of a device, some of which may be Ethernet now
		}
		host := &umadHost{fs: sysfs.New(""), named: len(guids)+len(o.devices) > 0, log: log}
		return &serve.Manager{Host: host, Wanted: wanted, Number: number}, nil
	}
	return nil, fmt.Errorf("--transport %q: not one of umad, ibsim", o.transport)
}

func (o *options) socketPath() string {
	switch {
	case o.socket == "-" || o.socket == "" && o.transport == "ibsim":
		return ""
	case o.socket != "":
		return o.socket
	}
	return control.DefaultSocket
}
