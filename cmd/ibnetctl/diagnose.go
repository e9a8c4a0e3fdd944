package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/diagnose"
)

func (a *app) diagnoseCmd() *cobra.Command {
	var from string
	c := &cobra.Command{
		Use: "diagnose [PORT|LINK]", Short: "from the cable to the IP address: where is it blocked, and what to type next", Args: cobra.MaximumNArgs(1),
		Long: `Goes the way of a packet for each port: device, GUID, cable, subnet manager,
interface, partition, multicast group, mode, MTU, address. At the first thing
that blocks the way it stops, says what it is, and prints the command to type
next. Exits 1 if a port is blocked.`,
		ValidArgsFunction: one(a.completeBoth),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sys *system
			var mods map[string]bool
			var err error
			if from != "" {
				var c *capture
				if sys, c, err = readCapture(from, ""); err == nil {
					mods = c.Modules
				}
			} else {
				sys, err = a.observe(cmd.Context())
				mods = modules()
			}
			if err != nil {
				return err
			}
			in := diagnose.Input{Snapshot: sys.snap, Report: sys.report(), Units: sys.set, Missing: missing(mods)}
			if from == "" && !a.noBus && a.root == "" {
				// The daemon knows more: what was refused, and the subnet managers.
				if c, err := connect(cmd.Context()); err == nil {
					if d, err := c.describe(cmd.Context()); err == nil {
						in.Report.Links, in.Report.Ports, in.SMs = d.Links, d.Ports, d.SubnetManagers
					}
					c.close()
				}
			}
			only := ""
			if len(args) == 1 {
				only = args[0]
			}
			chains := diagnose.Run(in, only)
			if only != "" && len(chains) == 0 {
				return fail(exitNoSuch, "there is no port or link %s (ibnetctl ports and ibnetctl list show all)", only)
			}
			failed := false
			for _, c := range chains {
				failed = failed || c.Failed()
			}
			if a.json {
				if err := a.emit(answer.Diagnose{Schema: answer.Schema, OK: !failed, Chains: chains}); err != nil {
					return err
				}
			} else {
				for i, c := range chains {
					if i > 0 {
						fmt.Fprintln(a.out)
					}
					a.printChain(c)
				}
			}
			if failed {
				return &exitError{code: exitFailure}
			}
			return nil
		},
	}
	c.Flags().StringVar(&from, "from", "", "diagnose the system recorded in `FILE` (ibnetctl capture)")
	return c
}

func (a *app) printChain(c diagnose.Chain) {
	fmt.Fprintln(a.out, a.paint(bold, c.On))
	for _, k := range c.Checks {
		mark, style := "ok  ", good
		switch k.Result {
		case diagnose.Warn:
			mark, style = "note", soso
		case diagnose.Fail:
			mark, style = "HERE", bad
		}
		name := k.Name
		if k.Link != "" && k.Name != "interface" {
			name = k.Link + " " + k.Name
		}
		fmt.Fprintf(a.out, "  %s  %-24s %s\n", a.paint(style, mark), name, k.Text)
		if k.Next != "" {
			fmt.Fprintf(a.out, "  %4s  %-24s %s %s\n", "", "", a.paint(bold, "next:"), k.Next)
		}
	}
}
