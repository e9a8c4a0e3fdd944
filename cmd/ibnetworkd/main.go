// The number of CPUs is read once: the runtime's own updates would wake an idle daemon.
//
//go:debug updatemaxprocs=0

// Command ibnetworkd keeps InfiniBand and RoCE links in the state that
// .ibnetwork files ask for.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"

	"ibnetworkd/daemon/app"
	"ibnetworkd/daemon/card"
	"ibnetworkd/internal/cli"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/internal/version"
)

func main() {
	// The live heap of hundreds of links is 5 MiB: collecting at 8 instead of 10
	// costs little, and the idle heap is paid for on every node of a cluster.
	debug.SetGCPercent(60)
	if len(os.Args) == 2 && os.Args[1] == app.CardHelper {
		signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM) // they are for the daemon, and it ends with its input
		_ = os.WriteFile("/proc/self/comm", []byte("ibnetworkd"), 0)   // it would be "exe"
		if err := card.Serve("/", os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "ibnetworkd: helper of a card: "+err.Error())
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == app.PacketSockets {
		const activated = 3 // sd_listen_fds(3)
		if err := packet.Serve(activated); err != nil {
			fmt.Fprintln(os.Stderr, "ibnetworkd: packet sockets: "+err.Error())
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ibnetworkd: "+err.Error())
		if cli.IsUsage(err) {
			os.Exit(cli.ExitUsage)
		}
		os.Exit(1)
	}
}

const help = `ibnetworkd reads *.ibnetwork files from /etc, /run, /usr/local/lib and
/usr/lib (each with /systemd/network below it), configures the links that they
match, and keeps them configured: at boot, on hotplug, after a driver restart,
and when a file changes (with WatchUnitFiles=no in
/etc/ibnetworkd/ibnetworkd.conf, on a reload only). ibnetctl shows what it does,
and why a link cannot be configured.

SIGHUP reads the files again. SIGTERM ends it and leaves the configuration in
place.

Usage:
  ibnetworkd [flags]

Flags:
`

func command(args []string) error {
	var o app.Options
	f := pflag.NewFlagSet("ibnetworkd", pflag.ContinueOnError)
	f.Usage = func() {}
	f.StringVar(&o.LogLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&o.StateDir, "state-dir", "/run/ibnetworkd", "`DIR` of the record and the state file")
	f.StringVar(&o.UnitRoot, "unit-root", "/", "`DIR` used as / when unit files are read")
	f.IntVar(&o.RecvBuffer, "event-buffer", 0, "`BYTES` of the receive buffer of the event sockets, 0 for a large one")
	f.BoolVar(&o.NoWatch, "no-watch", false,
		"do not apply unit files when they change: read them at the start, on SIGHUP and on reload only (WatchUnitFiles=no in ibnetworkd.conf)")
	f.StringVar(&o.Metrics, "metrics", "",
		"serve Prometheus metrics at `PLACE` as well, unix:PATH or ADDRESS:PORT; \"no\": nowhere, also not on metrics.sock in the state directory")
	f.StringVar(&o.MetricsTextfile, "metrics-textfile", "", "write Prometheus metrics to `FILE` for node_exporter's textfile collector")
	show := f.BoolP("version", "v", false, "print the version")
	usage := f.BoolP("help", "h", false, "print this help")
	switch err := f.Parse(args); {
	case err != nil:
		return cli.FlagError("ibnetworkd", err)
	case *usage:
		_, err = fmt.Print(help, f.FlagUsagesWrapped(cli.HelpWidth))
		return err
	case f.NArg() > 0:
		return cli.ArgumentsError(f.NArg(), "ibnetworkd")
	case *show:
		_, err = fmt.Println("ibnetworkd version " + version.String())
		return err
	}
	return run(context.Background(), o)
}

func run(ctx context.Context, o app.Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Caught from the beginning, so that an early one does not end the process.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	a, err := app.New(o)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, hangup)
}
