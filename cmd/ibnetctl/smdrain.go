package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/sm/control"
)

// drainTimeout bounds the wait for one subnet manager.
const drainTimeout = 10 * time.Second

func (a *app) smDrainCmd() *cobra.Command {
	return a.drainCommand(control.AskDrain, &cobra.Command{
		Use: "drain [SWITCH]", Short: "route around a switch before its maintenance", Args: cobra.MaximumNArgs(1),
		Long: `Has the ibnetsm of this host compute routes and multicast trees that do not pass
through a switch, named by its name or GUID, until ibnetctl sm undrain. Without a
switch it prints those that are drained, as ibnetsm status does.

Adapters on the switch stay reachable over its links to one neighbour, and are
listed: they lose the subnet when the switch goes off. A switch that alone leads
to others cannot be drained and stays in the routes; what it leads to is listed,
and the exit status is 1. ibnetctl sm whatif --drain SWITCH shows the effect on routes.

Only root and the group ibnetsm may drain a switch, on the host of the master. The
switch stays drained over sweeps, restarts and takeovers by a standby that has a copy
of what hosts registered, see ibnetsm(8). For any other standby, run the same
command with the GUID on its host too. opensm has no equivalent.`,
	})
}

func (a *app) smUndrainCmd() *cobra.Command {
	return a.drainCommand(control.AskUndrain, &cobra.Command{
		Use: "undrain SWITCH|all", Short: "route through a switch again", Args: cobra.ExactArgs(1),
		Long: `Reverts ibnetctl sm drain for one switch, named by its name or GUID, or for
all of them.`,
	})
}

func (a *app) drainCommand(verb string, c *cobra.Command) *cobra.Command {
	socket := ""
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.RunE = func(cmd *cobra.Command, args []string) error { return a.drain(cmd.Context(), socket, verb, args) }
	c.Flags().StringVar(&socket, "socket", "", "`PATH` of the socket of ibnetsm (default: all in /run/ibnetsm)")
	return c
}

func (a *app) drain(ctx context.Context, socket, verb string, args []string) error {
	word := ""
	if len(args) > 0 {
		word = args[0]
		if strings.TrimSpace(word) != word || word == "" || strings.ContainsAny(word, "\r\n") || len(verb)+len(word)+2 > control.MaxAsk {
			return fail(exitUsage, "%q is not the name or GUID of a switch", word)
		}
	}
	sockets := []string{socket}
	if socket == "" {
		var err error
		if sockets, err = control.Sockets(); err != nil {
			return err
		}
	}
	out := answer.Drains{Schema: answer.Schema, OK: true, Subnets: []control.Drains{}}
	for _, s := range sockets {
		var b bytes.Buffer
		ctx, cancel := context.WithTimeout(ctx, drainTimeout)
		err := control.Ask(ctx, s, strings.TrimSpace(verb+" "+word), &b)
		cancel()
		if err != nil {
			return err
		}
		var subnets []control.Drains
		if err := json.Unmarshal(b.Bytes(), &subnets); err != nil {
			return fail(exitFailure, "the ibnetsm at %s does not know %q; restart it if it is older than ibnetctl", s, verb)
		}
		out.Subnets = append(out.Subnets, subnets...)
	}
	for _, n := range out.Subnets {
		out.OK = out.OK && n.Problem == ""
		for _, d := range n.Drained {
			out.OK = out.OK && len(d.Kept) == 0
		}
	}
	return a.showDrains(out)
}

func (a *app) showDrains(out answer.Drains) error {
	var err error
	if !out.OK {
		err = &exitError{code: exitFailure}
	}
	if a.json {
		if e := a.emit(out); e != nil {
			return e
		}
		return err
	}
	if len(out.Subnets) == 0 {
		fmt.Fprintln(a.out, "ibnetsm manages no port yet.")
	}
	for _, n := range out.Subnets {
		fmt.Fprintf(a.out, "%s: %s\n", a.paint(bold, fmt.Sprintf("%s/%d", n.Device, n.Port)), n.State)
		if n.Problem != "" {
			a.field("Problem", a.paint(bad, n.Problem))
		}
		for _, d := range n.Drained {
			a.field("Drained", d.Words())
		}
		if len(n.Drained) == 0 {
			a.field("Drained", "nothing")
		} else if n.State != "Master" {
			a.field("Note", "this subnet manager is not the master; it avoids them after it becomes the master")
		}
	}
	return err
}
