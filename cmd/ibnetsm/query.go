package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
)

// sockets returns the sockets to query: the given one, or all that exist, because
// ibnetworkd runs one manager for each port.
func sockets(given string) ([]string, error) {
	if given != "" {
		return []string{given}, nil
	}
	return control.Sockets()
}

// ask sends one query to each socket and copies the answers to w.
func ask(ctx context.Context, socket, what string, w io.Writer) error {
	l, err := sockets(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, s := range l {
		errs = append(errs, control.Ask(ctx, s, what, w))
	}
	return errors.Join(errs...)
}

// askAll returns the status of every subnet of every running ibnetsm.
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
		if err := control.Ask(ctx, s, control.AskStatus, &b); err != nil {
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

// socketFlag is the socket that a query goes to.
func socketFlag(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", "", "`PATH` of the socket of a running ibnetsm (default: all in /run/ibnetsm)")
}

func metricsCmd() *cobra.Command {
	socket := ""
	c := &cobra.Command{Use: "metrics", Short: "print counters in Prometheus text format", Args: cobra.NoArgs,
		Long: "Prints the counters of the running ibnetsm in Prometheus text format.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), socket, control.AskMetrics, cmd.OutOrStdout())
		}}
	socketFlag(c, &socket)
	return c
}

func resweepCmd() *cobra.Command {
	socket, full := "", false
	c := &cobra.Command{Use: "resweep", Short: "sweep the subnets now", Args: cobra.NoArgs,
		Long: "Makes the running ibnetsm sweep its subnets now.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			what := control.AskResweep
			if full {
				what = control.AskFull
			}
			return ask(cmd.Context(), socket, what, cmd.OutOrStdout())
		}}
	socketFlag(c, &socket)
	c.Flags().BoolVar(&full, "full", false, "discover the whole subnet instead of querying each switch for changes")
	return c
}

func topologyCmd() *cobra.Command {
	socket, svg := "", false
	c := &cobra.Command{Use: "topology [DEVICE/PORT]", Short: "print the subnet in ibnetdiscover's format, or draw it",
		Long: `Prints the subnet of DEVICE/PORT, by default of all ports, in ibnetdiscover's
format, or draws it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			xs, err := askAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			port, err := pictured(xs, args, svg)
			if err != nil {
				return err
			}
			what := control.AskTopology
			if svg {
				what = control.AskPicture
			}
			return ask(cmd.Context(), socket, strings.TrimSpace(what+" "+port), cmd.OutOrStdout())
		}}
	socketFlag(c, &socket)
	c.Flags().BoolVar(&svg, "svg", false, "print a drawing as SVG")
	return c
}

// pictured returns the port whose subnet is to be printed, "" for all. A drawing
// shows one subnet, and only the master has its topology.
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
		return "", fmt.Errorf("%s: this host is not the master of its subnet (%s)", args[0], strings.Join(all, ", "))
	case len(masters) == 0:
		return "", fmt.Errorf("this host is not the master of any subnet (%s): run this on the master, or discover the fabric: ibnetctl "+
			"sm topology",
			strings.Join(all, ", "))
	case one && len(masters) > 1:
		return "", fmt.Errorf("there are several subnets: name one of %s", strings.Join(masters, ", "))
	case one || len(args) > 0:
		return masters[0], nil
	}
	return "", nil
}
