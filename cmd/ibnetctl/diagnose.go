package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/units"
)

func (a *app) diagnoseCmd() *cobra.Command {
	var from, unit string
	var all bool
	c := &cobra.Command{
		Use: "diagnose [PORT|LINK]", Short: "check from the cable to the IP address, and print the next command", Args: cobra.MaximumNArgs(1),
		Long: `Checks each port in the order of a packet's path: device, GUID, cable, subnet
manager, interface, partition, multicast group, mode, MTU, address. It stops at
the first problem of a port and prints the command to run next. Errors in unit
files are printed first, bonds last. A bond that could not fail over, a bond whose
slaves are all on one switch, and a daemon that is not running are notes; so is a
link that its unit moved to another network namespace, where not everything can be
checked.

A port or link without a unit counts as blocked only if it is in use, if it is
named, or with --all. Such a port without a cable, and such a link that is down,
is spare; if all links of such a port are down, its other problems are notes.

For health checks, the exit status is 0 if nothing is blocked, 1 if a port or link
is blocked, 7 if nothing is blocked but a unit file has an error, 8 if the system
could not be read, and 5 if the named port, link or unit does not exist. Notes do
not change it.`,
		Annotations:       map[string]string{paged: "yes"},
		ValidArgsFunction: one(a.completeBoth),
		RunE: func(cmd *cobra.Command, args []string) error {
			if unit != "" && len(args) > 0 {
				return fail(exitUsage, "--unit cannot be combined with the name of a port or link")
			}
			only := ""
			if len(args) == 1 {
				only = args[0]
			}
			in, err := a.diagnoseInput(cmd.Context(), from, unit)
			if err != nil {
				return err
			}
			in.All = all
			return a.diagnose(in, only)
		},
	}
	c.Flags().StringVar(&from, "from", "", "diagnose the system recorded in `FILE` (ibnetctl capture)")
	c.Flags().StringVar(&unit, "unit", "", "only the unit `NAME`: its errors, and the ports and links that it applies to")
	c.Flags().BoolVarP(&all, "all", "a", false, "also count ports and links without a unit that are not in use")
	_ = c.RegisterFlagCompletionFunc("unit", a.completeUnits)
	return c
}

// diagnoseInput is what is to be diagnosed: the system recorded in a file, or this one
// and what the daemon knows of it.
func (a *app) diagnoseInput(ctx context.Context, from, unit string) (in diagnose.Input, err error) {
	var sys *system
	var mods map[string]bool
	from = cmp.Or(from, a.recorded)
	if from != "" {
		var c *capture
		if sys, c, err = readCapture(from, ""); err == nil {
			mods = c.Modules
		}
	} else {
		if sys, err = a.observe(ctx); err != nil {
			err = &exitError{exitUnknown, err}
		}
		mods = modules()
	}
	if err != nil {
		return in, err
	}
	in = diagnose.Input{Snapshot: sys.snap, Report: sys.report(), Units: sys.set, Missing: missing(mods), Unit: unit}
	if unit != "" && sys.set.Unit(unit) == nil {
		if s := masked(sys.set, unit); s != "" {
			return in, fail(exitNoSuch, "%s: the unit is %s", unit, s)
		}
		return in, fail(exitNoSuch, "%s: no such unit in %s", unit, strings.Join(units.Dirs, ", "))
	}
	if from == "" && a.root == "" {
		in.Asked = askManagers(ctx, sys.snap)
	}
	if from == "" && !a.noBus && a.root == "" {
		// The daemon knows more: what was refused, the switches of bonds, and the subnet managers.
		var d *api.Description
		if c, err := connect(ctx); err == nil {
			if d, err = c.describe(ctx); err == nil {
				in.SMs = d.SubnetManagers
			}
			c.close()
		} else {
			if errors.Is(err, errNotRunning) { // a bus that does not answer does not show it
				in.StartDaemon = startDaemon()
			}
			d = a.fromReport("")
		}
		if d != nil {
			in.Report.Links, in.Report.Ports, in.Report.Notices = d.Links, d.Ports, d.Notices
		}
	}
	if a.recorded != "" {
		if err := recordedView(&in, a.recorded); err != nil {
			return in, err
		}
	}
	knowManagers(&in)
	return in, nil
}

// diagnose prints the chains of all ports, or of one port or link. It fails as the exit
// status says.
func (a *app) diagnose(in diagnose.Input, only string) error {
	chains := diagnose.Run(in, only)
	if only != "" && len(chains) == 0 {
		return fail(exitNoSuch, "%s: no such port or link (for all: ibnetctl ports, ibnetctl list)", only)
	}
	blocked, mistaken := false, false
	for _, c := range chains {
		blocked, mistaken = blocked || c.Blocked(), mistaken || c.Mistaken()
	}
	if a.json {
		if err := a.emit(answer.Diagnose{Schema: answer.Schema, OK: !blocked && !mistaken, Chains: chains}); err != nil {
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
	switch {
	case blocked:
		return &exitError{code: exitFailure}
	case mistaken:
		return &exitError{code: exitMistake}
	}
	return nil
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
		case diagnose.Spare, diagnose.Unchecked:
			mark, style = "-   ", faint
		}
		name := k.Name
		if k.Link != "" && k.Name != "interface" {
			name = k.Link + " " + k.Name
		}
		a.say(fmt.Sprintf("  %s  %-24s ", a.paint(style, mark), name), 33, k.Text)
		if k.Next != "" {
			a.step("        "+a.paint(bold, "next:")+" ", 14, k.Next)
		}
	}
}
