// Command ibnetsim runs a simulated subnet for other processes: package
// simfabric behind the sockets of package server. It takes a topology as
// ibnetdiscover prints it and a console like ibsim's on standard input.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/lab/simfabric/server"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ibnetsim:", err)
		os.Exit(1)
	}
}

func run() error {
	var o simfabric.Options
	sock := flag.String("sock", os.Getenv("IBSIM_SOCKNAME"), "base name of the sockets (environment IBSIM_SOCKNAME)")
	loss := flag.Float64("loss", 0, "probability that a packet is lost")
	dup := flag.Float64("dup", 0, "probability that a packet arrives twice")
	dmin := flag.Duration("delay-min", 0, "shortest time of a packet in one direction")
	dmax := flag.Duration("delay-max", 0, "longest time of a packet in one direction")
	seed := flag.Uint64("seed", 1, "seed of losses and delays")
	console := flag.Bool("console", true, "read commands from standard input")
	noConsole := flag.Bool("n", false, "no console, as ibsim's option")
	verbose := flag.Bool("v", false, "print each SMP to standard error as ibsim -v does")
	flag.Bool("s", true, "start at once, as ibsim's option; always true")
	for _, n := range []string{"N", "S", "P", "L", "M"} {
		flag.Int(n, 0, "a limit of ibsim, which this simulator does not have")
	}
	flag.Parse()
	if flag.NArg() != 1 {
		return fmt.Errorf("usage: ibnetsim [options] TOPOLOGY")
	}
	if *sock == "" {
		*sock = "sim"
	}
	f, err := os.Open(flag.Arg(0))
	if err != nil {
		return err
	}
	fab, err := fabric.ReadText(flag.Arg(0), f)
	f.Close()
	if err != nil {
		return err
	}
	o.Seed, o.Loss, o.Duplicate, o.DelayMin, o.DelayMax = *seed, *loss, *dup, *dmin, *dmax
	if *verbose {
		o.Trace = func(g ib.GUID, b *mad.Buf) {
			if m := mad.MethodOf(b); m == mad.MethodGet || m == mad.MethodSet {
				fmt.Fprintf(os.Stderr, "packet (attr 0x%x mod 0x%x) %v to %s: %x\n", uint16(mad.AttrOf(b)), mad.ModOf(b), m, g, mad.SMPData(b)[:])
			}
		}
	}
	sim := simfabric.New(fab, o)
	srv, err := server.Listen(sim, *sock, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer srv.Close()
	defer sim.Close()
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGTERM, os.Interrupt)
	fmt.Println("########################")
	fmt.Println("Network simulator ready.")
	if !*console || *noConsole {
		<-sig
		return nil
	}
	done := make(chan struct{})
	go func() {
		c := shell{sim, fab, os.Stdout}
		if c.loop(os.Stdin) {
			close(done)
		}
	}()
	select {
	case <-sig:
	case <-done:
	}
	return nil
}

// shell reads commands; their names and the prompt are those of ibsim, for
// scripts that drive either.
type shell struct {
	sim *simfabric.Sim
	fab *fabric.Fabric
	out io.Writer
}

// loop runs until Quit (true) or the end of the input (false).
func (c shell) loop(r io.Reader) bool {
	s := bufio.NewScanner(r)
	for {
		fmt.Fprint(c.out, "sim> ")
		if !s.Scan() {
			return false
		}
		f := words.FindAllString(s.Text(), -1)
		if len(f) == 0 {
			continue
		}
		if strings.HasPrefix("quit", strings.ToLower(f[0])) && len(f[0]) > 2 {
			return true
		}
		if err := c.command(strings.ToLower(f[0]), f[1:]); err != nil {
			fmt.Fprintln(c.out, "#", err)
		}
	}
}

var words = regexp.MustCompile(`"[^"]*"(\[\d+\])?|\S+`)

// port reads "node"[port].
func (c shell) port(args []string) (ib.GUID, uint8, error) {
	if len(args) == 0 {
		return 0, 0, fmt.Errorf(`which port? write "node"[port]`)
	}
	name, rest, _ := strings.Cut(strings.TrimPrefix(args[0], `"`), `"`)
	num, err := strconv.ParseUint(strings.Trim(rest, "[]"), 10, 8)
	if err != nil {
		return 0, 0, fmt.Errorf("%q has no [port]", args[0])
	}
	g, err := c.node(name)
	return g, uint8(num), err
}

func (c shell) node(name string) (ib.GUID, error) {
	h := c.sim.FindHost(strings.Trim(name, `"`))
	if len(h) == 0 {
		return 0, fmt.Errorf("no node %q", name)
	}
	return h[0].NodeGUID, nil
}

func (c shell) command(cmd string, args []string) error {
	onPort := func(f func(ib.GUID, uint8) error) error {
		g, n, err := c.port(args)
		if err != nil {
			return err
		}
		return f(g, n)
	}
	onNode := func(f func(ib.GUID) error) error {
		if len(args) == 0 {
			return fmt.Errorf("which node?")
		}
		g, err := c.node(args[0])
		if err != nil {
			return err
		}
		return f(g)
	}
	switch cmd {
	case "unlink":
		return onPort(c.sim.Cut)
	case "relink":
		return onPort(c.sim.Restore)
	case "flap":
		return onPort(c.sim.Flap)
	case "reboot":
		return onNode(c.sim.Reboot)
	case "poweroff":
		return onNode(c.sim.PowerOff)
	case "poweron":
		return onNode(c.sim.PowerOn)
	case "rename":
		return onNode(func(g ib.GUID) error { return c.sim.SetDescription(g, strings.Trim(strings.Join(args[1:], " "), `"`)) })
	case "active":
		fmt.Fprintln(c.out, c.sim.AllActive())
	case "counters":
		n := c.sim.Counters()
		for _, a := range slices.Sorted(maps.Keys(n.SMPs)) {
			v := n.SMPs[a]
			fmt.Fprintf(c.out, "%-26s get %8d set %8d\n", mad.AttrName(mad.ClassSubnDR, a), v.Get, v.Set)
		}
		fmt.Fprintf(c.out, "total %d traps %d lost %d undeliverable %d\n", n.Total, n.Traps, n.Lost, n.Undeliverable)
	case "reset":
		c.sim.ResetCounters()
	case "loss":
		if len(args) == 1 {
			p, err := strconv.ParseFloat(args[0], 64)
			if err != nil || p < 0 || p > 1 {
				return fmt.Errorf("a probability is a number from 0 to 1")
			}
			c.sim.SetLoss(p)
		}
	case "sleep":
		if len(args) == 1 {
			d, err := time.ParseDuration(args[0])
			if err != nil {
				return err
			}
			time.Sleep(min(d, time.Minute))
		}
	case "dump":
		for _, e := range c.sim.EndPorts() {
			fmt.Fprintf(c.out, "%s[%d] %s lid %d %v issm %v\n", e.Description, e.Num, e.PortGUID, e.LID, e.State, e.IsSM)
		}
	default:
		return fmt.Errorf("commands: unlink relink flap reboot poweroff poweron rename active counters reset loss dump quit")
	}
	return nil
}
