package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"ibnetworkd/sm/route"
)

func runCmd() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "run", Short: "manage the subnets of this host's ports", Args: cobra.NoArgs,
		Long: `Manages the subnet of each InfiniBand port selected by --port-guid or --device,
by default of all ports. A port that appears later gets a subnet manager then. A
master of equal or higher priority stays master. On SIGHUP, settings, partitions
and node names are read again and the subnets are swept; on SIGTERM, mastership
is handed to a standby.

If the partitions file cannot be used, ibnetsm starts with the last one that
could be, or with the default partition, and reports that in its log and status.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.remember(cmd.Flags())
			return run(cmd.Context(), &o)
		},
	}
	o.bind(c.Flags())
	return c
}

// run builds the subnet manager and runs it until a signal or ctx ends it.
func run(ctx context.Context, o *options) error {
	// A sweep makes garbage in proportion to the subnet, once; memory is worth
	// more than the collector's time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if engines := o.given["routing"]; len(engines) > 0 {
		if err := route.CheckEngines(engines[0]); err != nil {
			return fmt.Errorf("--routing: %w", err)
		}
	}
	d, err := newDaemon(o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	return d.run(ctx, hangup)
}
