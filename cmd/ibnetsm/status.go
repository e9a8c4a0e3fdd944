package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/internal/cli"
	"ibnetworkd/sm/engine"
)

func statusCmd() *cobra.Command {
	socket, asJSON := "", false
	c := &cobra.Command{Use: "status", Short: "show state, nodes and last sweep of the running ibnetsm", Args: cobra.NoArgs,
		Long: "Shows the state, the nodes and the last sweep of the running ibnetsm.",
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
	socketFlag(c, &socket)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all counters")
	return c
}

func printStatus(out io.Writer, xs []*engine.Snapshot) {
	if len(xs) == 0 {
		fmt.Fprintln(out, "no subnet: there is no InfiniBand port, or none that was selected")
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
			line("Trouble", "%d LIDs are used twice: the other subnet manager assigns LIDs too", x.DoubledLIDs)
		}
		if x.State == "Master" {
			line("Subnet", "%d nodes, %d of them switches, %d links, highest LID %v", x.Nodes, x.Switches, x.Links, x.TopLID)
			line("Routes", "%s", x.RoutesWords())
			line("Multicast groups", "%d", x.Groups)
			if l := x.LastSweep; l.At.IsZero() {
				line("Last sweep", "the first is running")
			} else {
				line("Last sweep", "%s ago, %s, %d SMPs in %s%s", time.Since(l.At).Round(time.Second), l.Kind, l.SMPs,
					l.Duration.Round(time.Microsecond), cli.Parens(l.Reason))
			}
			for _, d := range x.Drained {
				line("Drained", "%s", d.Words())
			}
			for _, g := range x.Retrying {
				line("Trouble", "node %v, or a node beside it, does not answer or rejects settings; will retry", g)
			}
			for _, p := range x.Problems {
				line("Discovery", "%s", p)
			}
		}
		n := x.Counters
		line("MADs", "%d SMPs sent, %d repeated, %d unanswered, %d refused; %d SA requests, %d traps, %d dropped",
			n.SMPs, n.Repeats, n.Timeouts, n.Errors, n.SA, n.Traps, n.Dropped)
		w.Flush()
	}
}

// untrusted is the reason why neither manager hands over to the other, or "".
func untrusted(m *engine.Manager) string {
	if m.Problem == "" {
		return ""
	}
	return ", not trusted: " + m.Problem
}
