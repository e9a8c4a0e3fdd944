package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/version"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/pkey"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/serve"
)

func rootCmd() *cobra.Command {
	root := &cobra.Command{
		Use: "ibnetsm", Short: "InfiniBand subnet manager", Version: version.String(),
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(runCmd(), statusCmd(), topologyCmd(), askCmd("metrics", "print counters in Prometheus' text form", serve.AskMetrics), resweepCmd(), reloadCmd())
	return root
}

// options of run.
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
	partitions string
	rules      []string
	enforce    string
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
}

func runCmd() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "run", Short: "manage the subnets of this host's ports", Args: cobra.NoArgs,
		Long: `Manages the subnet of every InfiniBand port given by --port-guid or --device, or of
all of them. A port that appears later gets its subnet manager then. A master of
equal or higher standing is left alone. SIGHUP reads the settings, the partitions and
the names again and sweeps the subnets, SIGTERM hands over to a standby and ends.

With a partitions file that cannot be used it starts with the last one that could, or
with the default partition, and says so.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &o) },
	}
	o.bind(c.Flags())
	return c
}

// bind makes the flags of run.
func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.transport, "transport", "umad", "how MADs travel: umad (the kernel) or ibsim (the simulator that IBSIM_SOCKNAME and SIM_HOST name)")
	f.StringSliceVar(&o.guids, "port-guid", nil, "port GUID to manage; may be given several times (default all InfiniBand ports)")
	f.StringSliceVar(&o.devices, "device", nil, "device (mlx5_0) or port (mlx5_0/1) to manage; may be given several times")
	f.Uint8Var(&o.priority, "priority", 0, "0 to 15, the higher wins; between equals the lower port GUID")
	f.Uint64Var(&o.smKey, "sm-key", 1, "SM_Key that other managers must have for a handover; opensm has 1 too, 0 trusts everyone; better in --keys-file, all can read the command line")
	f.Uint64Var(&o.saKey, "sa-key", 1, "SM_Key in requests to the SA that makes them trusted; opensm has 1 too; better in --keys-file")
	f.Uint64Var(&o.mKey, "m-key", 0, "M_Key that protects the ports; 0 none; better in --keys-file")
	f.Uint8Var(&o.protect, "m-key-protect", 1, "0 to 3: what the M_Key protects (IBA vol 1, 14.2.4.1); 0 shows it to everybody")
	f.Uint16Var(&o.lease, "m-key-lease", 60, "seconds after which ports that no manager looks after show their M_Key; 0 never")
	f.Uint64Var(&o.prefix, "subnet-prefix", ib.DefaultPrefix, "subnet prefix of the GIDs")
	f.Uint8Var(&o.lmc, "lmc", 0, "0 to 7: adapter ports get 2^LMC LIDs")
	f.StringVar(&o.routing, "routing", "auto", "auto, minhop, updn, ftree or dor; several with commas, the first that fits is taken")
	f.BoolVar(&o.qos, "qos", false, "write SL-to-VL mapping and VL arbitration tables, and route over service levels where that helps (dor on tori)")
	f.StringVar(&o.names, "node-name-map", "", "file with names for nodes: a GUID and a name in double quotes on each line")
	f.StringVar(&o.partitions, "partitions", "", "partitions file, in the form of opensm's partitions.conf")
	f.StringArrayVar(&o.rules, "partition", nil, "a partition, as '0x8001 Name=storage Members=ALL MTU=4096 Rate=100Gb/s' or with semicolons for spaces; may be given several times")
	f.StringVar(&o.enforce, "part-enforce", "both", "where switches check P_Keys when there are partitions besides the default one: both, in, out or off")
	f.DurationVar(&o.sweep, "sweep", 10*time.Second, "time between light sweeps; 0 none")
	f.DurationVar(&o.poll, "poll", 250*time.Millisecond, "how often a standby asks the master")
	f.IntVar(&o.window, "window", 32, "SMPs under way at one time")
	f.DurationVar(&o.timeout, "timeout", 200*time.Millisecond, "time to wait for the answer to an SMP")
	f.IntVar(&o.retries, "retries", 3, "how often an SMP is repeated")
	f.StringVar(&o.logFile, "log-file", "", "append the log to this file (default standard error)")
	f.BoolVar(&o.logJSON, "log-json", false, "log in JSON")
	f.BoolVar(&o.verbose, "verbose", false, "log more")
	f.StringVar(&o.stateDir, "state-dir", "", "where LIDs are remembered (default $STATE_DIRECTORY, else nowhere for ibsim, /var/lib/ibnetsm for umad)")
	f.StringVar(&o.settings, "settings", "", "file with lines Key=value, the keys of [SubnetManager] in ibnetwork(5), in place of the options of the same meaning; after a minus sign it may be missing")
	f.StringVar(&o.keysFile, "keys-file", "", "file of mode 0600 with lines MKey=, SMKey= and SAKey= (default the systemd credential keys, if there is one)")
	f.DurationVar(&o.waitPort, "wait-port", 0, "give up when no port could be opened for so long; 0 waits for ever")
	f.StringVar(&o.socket, "socket", "", "socket for status (default "+serve.DefaultSocket+"; none for ibsim); - for none")
}

func run(ctx context.Context, o *options) error {
	// A sweep makes garbage in proportion to the subnet, once; memory is worth
	// more than the collector's time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	// One thread for each subnet: what a manager does is one goroutine's, and to
	// hand packets from thread to thread takes longer than the work on them.
	few := os.Getenv("GOMAXPROCS") == ""
	if few {
		runtime.GOMAXPROCS(1)
	}
	out := io.Writer(os.Stderr)
	if o.logFile != "" {
		f, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	level := new(slog.LevelVar)
	ho := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(out, ho)
	if o.logJSON {
		h = slog.NewJSONHandler(out, ho)
	}
	log := slog.New(h)

	now, err := o.withSettings()
	if err != nil {
		return err
	}
	now.setLevel(level)
	say := &sayer{}
	cfg, err := now.config(log)
	if bad := (errPartitions{}); errors.As(err, &bad) {
		var what string
		cfg.Partitions, what = now.fallBack()
		say.problem(firstLine(bad) + ": " + what + " is used")
		log.Error("the partitions cannot be used", "err", bad.error, "instead", what)
	} else if err != nil {
		return err
	} else if err := now.keepGood(); err != nil {
		log.Warn("the partitions are not remembered for a start with a bad file", "err", err)
	}
	m, err := now.manager(log)
	if err != nil {
		return err
	}
	m.Wait = o.waitPort
	threads := map[serve.Port]bool{}
	var current atomic.Pointer[engine.Config]
	current.Store(&cfg)
	m.Log, m.Ended = log, say.gone
	m.Config = func(p serve.Port) engine.Config {
		if threads[p] = true; few && len(threads) > 1 {
			runtime.GOMAXPROCS(min(len(threads), runtime.NumCPU()))
		}
		c := *current.Load()
		c.Log = log
		c.Store = now.store(p)
		c.Changed = func(x *engine.Snapshot) { say.state(p, x) }
		return c
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			// As opensm does: the partitions again, and a sweep.
			opts, err := o.withSettings()
			var next engine.Config
			if err == nil {
				opts.setLevel(level)
				next, err = opts.config(log)
			}
			if err != nil {
				log.Error("the settings cannot be used, the former ones stay", "err", err)
				say.problem(firstLine(err) + ": the former settings stay")
				m.Resweep(false, "SIGHUP")
				continue
			}
			say.problem("")
			if err := opts.keepGood(); err != nil {
				log.Warn("the partitions are not remembered for a start with a bad file", "err", err)
			}
			was := current.Load()
			current.Store(&next)
			if !sameFixed(*was, next) {
				log.Info("settings changed that need a start")
				cancel(errAgain)
				return
			}
			if !reflect.DeepEqual(next.Names, was.Names) {
				for _, s := range m.Subnets() {
					s.SetNames(next.Names)
				}
			}
			if !reflect.DeepEqual(next.Partitions, was.Partitions) {
				log.Info("partitions changed", "file", opts.partitions)
				for _, s := range m.Subnets() {
					s.SetPartitions(next.Partitions, "SIGHUP")
				}
				continue
			}
			m.Resweep(false, "SIGHUP")
		}
	}()
	if path := o.socketPath(); path != "" {
		l, err := serve.Listen(path)
		if err != nil {
			log.Warn("no status socket", "err", err)
		} else {
			go m.Serve(ctx, l)
		}
	}
	log.Info("ibnetsm starts", "version", version.String(), "transport", o.transport, "priority", o.priority)
	go watchdog(ctx, m)
	if m.Number == 0 {
		// Ports may come at any time: to wait for them is what was asked for.
		say.ready()
	}
	defer sd.SdNotify(false, sd.SdNotifyStopping)
	if err := m.Run(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, errAgain) {
		return err
	}
	return nil
}

// errAgain ends a subnet manager that is to be started again by systemd, with
// settings that it cannot take over while it runs.
var errAgain = errors.New("settings have changed that only a start can take over")

// sameFixed reports whether two configurations differ only in what a running
// subnet manager takes over.
func sameFixed(a, b engine.Config) bool {
	for _, c := range []*engine.Config{&a, &b} {
		c.Partitions, c.Names, c.Log, c.Store, c.Changed = partition.Config{}, nil, nil, nil, nil
	}
	return reflect.DeepEqual(a, b)
}

func (o *options) setLevel(l *slog.LevelVar) {
	l.Set(slog.LevelInfo)
	if o.verbose {
		l.Set(slog.LevelDebug)
	}
}

// config checks the flags and reads the files that they name.
func (o *options) config(log *slog.Logger) (engine.Config, error) {
	c := engine.Config{Priority: o.priority, SMKey: o.smKey, LMC: ib.LMC(o.lmc), Window: o.window, Timeout: o.timeout, Retries: o.retries,
		SA: sa.Config{SAKey: o.saKey}, Sweep: o.sweep, Poll: o.poll, Policy: program.DefaultPolicy()}
	if o.priority > 15 {
		return c, fmt.Errorf("--priority %d: want 0 to 15", o.priority)
	}
	if o.lmc > 7 {
		return c, fmt.Errorf("--lmc %d: want 0 to 7", o.lmc)
	}
	if o.window < 1 || o.window > 4096 {
		return c, fmt.Errorf("--window %d: want 1 to 4096", o.window)
	}
	if o.protect > 3 {
		return c, fmt.Errorf("--m-key-protect %d: want 0 to 3", o.protect)
	}
	if o.saKey == 0 {
		return c, errors.New("--sa-key 0: want a key; a request with 0 is one that is not trusted")
	}
	if o.prefix == 0 {
		return c, errors.New("--subnet-prefix 0: want a prefix, as 0xfe80000000000000")
	}
	if o.timeout <= 0 || o.poll <= 0 {
		return c, fmt.Errorf("--timeout %v, --poll %v: want more than 0", o.timeout, o.poll)
	}
	if o.retries < 0 || o.retries > 100 {
		return c, fmt.Errorf("--retries %d: want 0 to 100", o.retries)
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
	if o.names != "" {
		// Names are for people: without them the subnet works as well.
		b, err := os.ReadFile(o.names)
		if err == nil {
			c.Names, err = fabric.ParseNames(o.names, b)
		}
		if err != nil {
			log.Warn("not all node names are shown", "err", err)
		}
	}
	if o.qos {
		c.QoS = &qos.Options{}
	}
	var err error
	if c.Enforce, err = pkey.ParseEnforcement(o.enforce); err != nil {
		return c, fmt.Errorf("--part-enforce %w", err)
	}
	if c.Partitions, err = o.readPartitions(); err != nil {
		return c, errPartitions{err}
	}
	return c, nil
}

// manager returns one that knows where the ports are and which of them are wanted.
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
		for _, g := range guids {
			if g == p.GUID {
				return true
			}
		}
		for _, d := range o.devices {
			if d == p.Device || d == fmt.Sprintf("%s/%d", p.Device, p.Num) {
				return true
			}
		}
		return false
	}
	switch o.transport {
	case "ibsim":
		return &serve.Manager{Host: simHost{}, Number: 1}, nil
	case "umad":
		number := len(guids) + len(o.devices)
		if slices.ContainsFunc(o.devices, func(d string) bool { return !strings.Contains(d, "/") }) {
			number = 0 // all ports of a device, some of which may be Ethernet now
		}
		return &serve.Manager{Host: &umadHost{fs: sysfs.New(""), named: len(guids)+len(o.devices) > 0, log: log}, Wanted: wanted, Number: number}, nil
	}
	return nil, fmt.Errorf("--transport %q: want umad or ibsim", o.transport)
}

func (o *options) socketPath() string {
	switch {
	case o.socket == "-" || o.socket == "" && o.transport == "ibsim":
		return ""
	case o.socket != "":
		return o.socket
	}
	return serve.DefaultSocket
}

// stateFolder is where things are remembered, empty for nowhere.
func (o *options) stateFolder() string {
	dir := o.stateDir
	if dir == "" {
		dir = os.Getenv("STATE_DIRECTORY")
	}
	if dir == "" && o.transport == "umad" {
		dir = "/var/lib/ibnetsm"
	}
	return dir
}

// store keeps a port's LIDs in the state folder.
func (o *options) store(p serve.Port) engine.Store {
	dir := o.stateFolder()
	if dir == "" {
		return nil
	}
	return fileStore(filepath.Join(dir, fmt.Sprintf("guid2lid-%016x", uint64(p.GUID))))
}

// fileStore is a file that is replaced as a whole.
type fileStore string

func (f fileStore) Load() ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

func (f fileStore) Save(b []byte) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(string(f), b, 0o644)
}

// sockets are those to ask: the one that was given, or all that are there, for
// ibnetworkd runs one manager for each port.
func sockets(given string) ([]string, error) {
	if given != "" {
		return []string{given}, nil
	}
	l, err := filepath.Glob(filepath.Join(filepath.Dir(serve.DefaultSocket), "*.sock"))
	if err == nil && len(l) == 0 {
		err = fmt.Errorf("no ibnetsm is running: there is no socket in %s", filepath.Dir(serve.DefaultSocket))
	}
	return l, err
}

func ask(ctx context.Context, socket, what string, w io.Writer) error {
	l, err := sockets(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, s := range l {
		errs = append(errs, serve.Ask(ctx, s, what, w))
	}
	return errors.Join(errs...)
}

// askAll asks for the status of every subnet of every running ibnetsm.
func askAll(ctx context.Context, socket string) ([]*engine.Snapshot, error) {
	l, err := sockets(socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all, errs := []*engine.Snapshot{}, []error(nil)
	for _, s := range l {
		var b bytes.Buffer
		if err := serve.Ask(ctx, s, serve.AskStatus, &b); err != nil {
			errs = append(errs, err)
			continue
		}
		var xs []*engine.Snapshot
		if err := json.Unmarshal(b.Bytes(), &xs); err != nil {
			errs = append(errs, fmt.Errorf("answer of %s: %w", s, err))
			continue
		}
		all = append(all, xs...)
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

func askCmd(name, short, what string) *cobra.Command {
	socket := ""
	c := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return ask(cmd.Context(), socket, what, cmd.OutOrStdout())
	}}
	c.Flags().StringVar(&socket, "socket", socket, "socket of a running ibnetsm (default all in /run/ibnetsm)")
	return c
}

func resweepCmd() *cobra.Command {
	socket, full := "", false
	c := &cobra.Command{Use: "resweep", Short: "look at the subnets again now", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		what := serve.AskResweep
		if full {
			what = serve.AskFull
		}
		return ask(cmd.Context(), socket, what, cmd.OutOrStdout())
	}}
	c.Flags().StringVar(&socket, "socket", socket, "socket of a running ibnetsm (default all in /run/ibnetsm)")
	c.Flags().BoolVar(&full, "full", false, "discover everything anew instead of asking each switch what changed")
	return c
}

func topologyCmd() *cobra.Command {
	socket, svg := "", false
	c := &cobra.Command{Use: "topology [DEVICE/PORT]", Short: "print the subnet in ibnetdiscover's form, or draw it", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			xs, err := askAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			port, err := pictured(xs, args, svg)
			if err != nil {
				return err
			}
			what := serve.AskTopology
			if svg {
				what = serve.AskPicture
			}
			return ask(cmd.Context(), socket, strings.TrimSpace(what+" "+port), cmd.OutOrStdout())
		}}
	c.Flags().StringVar(&socket, "socket", socket, "socket of a running ibnetsm (default all in /run/ibnetsm)")
	c.Flags().BoolVar(&svg, "svg", false, "draw it as SVG")
	return c
}

// pictured gives the port whose subnet is meant, "" for all. One picture holds
// one subnet, and only the master knows it.
func pictured(xs []*engine.Snapshot, args []string, one bool) (string, error) {
	var masters, all []string
	for _, x := range xs {
		p := fmt.Sprintf("%s/%d", x.Device, x.Port)
		all = append(all, p+" is "+x.State)
		if x.State == mad.SMMaster.String() && (len(args) == 0 || args[0] == p) {
			masters = append(masters, p)
		}
	}
	switch {
	case len(masters) == 0 && len(args) > 0:
		return "", fmt.Errorf("%s is not a port whose subnet is managed from here (%s)", args[0], strings.Join(all, ", "))
	case len(masters) == 0:
		return "", fmt.Errorf("no subnet is managed from here (%s): ask the master, or the fabric itself with ibnetctl sm topology", strings.Join(all, ", "))
	case one && len(masters) > 1:
		return "", fmt.Errorf("there are several subnets, name one: %s", strings.Join(masters, ", "))
	case one || len(args) > 0:
		return masters[0], nil
	}
	return "", nil
}

func statusCmd() *cobra.Command {
	socket, asJSON := "", false
	c := &cobra.Command{Use: "status", Short: "tell what the running ibnetsm does", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			xs, err := askAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(xs)
			}
			printStatus(cmd.OutOrStdout(), xs)
			return nil
		}}
	c.Flags().StringVar(&socket, "socket", socket, "socket of a running ibnetsm (default all in /run/ibnetsm)")
	c.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	return c
}

func printStatus(out io.Writer, xs []*engine.Snapshot) {
	if len(xs) == 0 {
		fmt.Fprintln(out, "no subnet: no InfiniBand port is there, or none was asked for")
		return
	}
	for i, x := range xs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		line := func(k, f string, a ...any) { fmt.Fprintf(w, "%s:\t%s\n", k, fmt.Sprintf(f, a...)) }
		line("Port", "%s/%d, GUID %v, LID %v, %s", x.Device, x.Port, x.PortGUID, x.LID, x.PortState)
		line("State", "%s, priority %d", x.State, x.Priority)
		if x.Master != nil {
			line("Master", "%v, LID %v, priority %d%s", x.Master.GUID, x.Master.LID, x.Master.Priority, untrusted(x.Master))
		}
		for _, o := range x.Others {
			line("Other manager", "%v, LID %v, priority %d, %s%s", o.GUID, o.LID, o.Priority, o.State, untrusted(&o))
		}
		if x.DoubledLIDs > 0 {
			line("Trouble", "%d LIDs are used twice: the other manager gives out LIDs too", x.DoubledLIDs)
		}
		if x.State == "Master" {
			line("Subnet", "%d nodes, %d of them switches, %d links, highest LID %v, routing %s", x.Nodes, x.Switches, x.Links, x.TopLID, x.Routing)
			line("Multicast groups", "%d", x.Groups)
			if l := x.LastSweep; l.At.IsZero() {
				line("Last sweep", "the first is under way")
			} else {
				line("Last sweep", "%s ago, %s, %d SMPs in %s%s", time.Since(l.At).Round(time.Second), l.Kind, l.SMPs, l.Duration.Round(time.Microsecond), reason(l.Reason))
			}
			for _, g := range x.Retrying {
				line("Trouble", "node %v does not answer or does not take what it is told; tried again", g)
			}
		}
		line("MADs", "%d SMPs sent, %d repeated, %d unanswered, %d refused; %d SA requests, %d traps, %d dropped", x.Counters.SMPs, x.Counters.Repeats,
			x.Counters.Timeouts, x.Counters.Errors, x.Counters.SA, x.Counters.Traps, x.Counters.Dropped)
		w.Flush()
	}
}

// untrusted says that neither manager hands over to the other.
func untrusted(m *engine.Manager) string {
	if m.Problem == "" {
		return ""
	}
	return ", not trusted: " + m.Problem
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
