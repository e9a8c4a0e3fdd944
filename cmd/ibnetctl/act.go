package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

func (a *app) reloadCmd() *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "read the unit files again and apply what changed", Args: cobra.NoArgs,
		Long: "Reads all unit files again. Reconfigures only links whose unit or drop-ins changed, and links on which another " +
			"program changed a sysctl that a unit sets. ibnetctl plan shows the changes beforehand.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c, err := connect(cmd.Context()); err == nil {
				c.close()
			} else if hangUp(os.Getenv("MAINPID")) {
				return nil
			}
			return a.withDaemon(cmd.Context(), func(c *client) error {
				if err := c.call(cmd.Context(), "Reload", nil); err != nil {
					return err
				}
				d, err := c.describe(cmd.Context())
				if err != nil {
					return err
				}
				for _, p := range d.Problems {
					fmt.Fprintln(a.err, p)
				}
				return nil
			})
		},
	}
}

// hangUp has the daemon of that process id read its files without a bus. systemd sets
// $MAINPID for ExecReload=, and works where there is no bus (a rescue system).
func hangUp(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 0 {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n))
	return err == nil && strings.TrimSpace(string(b)) == "ibnetworkd" && syscall.Kill(n, syscall.SIGHUP) == nil
}

func (a *app) reconfigureCmd() *cobra.Command {
	return &cobra.Command{
		Use: "reconfigure LINK...", Short: "apply the unit of a link again", Args: cobra.MinimumNArgs(1),
		Long: "Compares each named link with its unit again and applies every difference at once, without waiting for a " +
			"retry delay. Exits 1 if no unit is applied to a named link. " + patternHelp + ".",
		ValidArgsFunction: a.completeLinks,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDaemon(cmd.Context(), func(c *client) error {
				names, errs := c.expand(cmd.Context(), args)
				if err := c.each(cmd.Context(), "Reconfigure", names, errs); err != nil {
					return err
				}
				d, err := c.describe(cmd.Context())
				if err != nil {
					return err
				}
				return joined(notApplied(d, args))
			})
		},
	}
}

// notApplied returns why no unit is applied to the links that are named, not those that fit a
// pattern.
func notApplied(d *api.Description, names []string) (errs []error) {
	for i := range d.Links {
		l := &d.Links[i]
		if l.State != link.StateUnmanaged || !slices.Contains(names, l.Name) {
			continue
		}
		switch r := l.Reason(); {
		case r.Code == link.CodeNoUnit && r.Next == "":
			errs = append(errs, fail(exitFailure, "%s: no unit matches the link; to write one: ibnetctl edit 10-%s", l.Name, l.Name))
		case r.Next != "":
			errs = append(errs, fail(exitFailure, "%s; next: %s", r.Of(l.Name), r.Next))
		default:
			errs = append(errs, fail(exitFailure, "%s", r.Of(l.Name)))
		}
	}
	return errs
}

func (a *app) renewCmd() *cobra.Command {
	return &cobra.Command{
		Use: "renew LINK...", Short: "ask the DHCP servers of a link again", Args: cobra.MinimumNArgs(1),
		Long: "Sends a request to the DHCP servers of each named link now, to renew its lease or to get one. It is for links " +
			"with DHCP= in [Network] of their units, and for those where a router requests DHCPv6. ibnetctl status LINK shows " +
			"the lease. " + patternHelp + ".",
		ValidArgsFunction: a.completeLinks,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.eachLink(cmd, "Renew", args) },
	}
}

// eachLink calls a method of the daemon for each link; the names may be patterns.
func (a *app) eachLink(cmd *cobra.Command, method string, args []string) error {
	return a.withDaemon(cmd.Context(), func(c *client) error {
		names, missing := c.expand(cmd.Context(), args)
		return c.each(cmd.Context(), method, names, missing)
	})
}

// each joins its errors to errs: one that fails does not keep the others from being
// done.
func (c *client) each(ctx context.Context, method string, names []string, errs []error) error {
	for _, n := range names {
		if err := c.call(ctx, method, nil, n); err != nil {
			errs = append(errs, err)
		}
	}
	return joined(errs)
}

func (a *app) upDownCmd(up bool) *cobra.Command {
	word, method := "up", "Up"
	if !up {
		word, method = "down", "Down"
	}
	return &cobra.Command{
		Use: word + " LINK...", Short: "bring links " + word, Args: cobra.MinimumNArgs(1),
		Long: "Brings the named links " + word + " and keeps them in that state until the next " +
			map[bool]string{true: "ibnetctl down", false: "ibnetctl up"}[up] +
			", restart of the daemon, or change of ActivationPolicy= in the unit. " + patternHelp + ".",
		ValidArgsFunction: a.completeLinks,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.eachLink(cmd, method, args) },
	}
}

var logLevels = []string{"debug", "info", "warn", "error"}

func (a *app) logLevelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "log-level [debug|info|warn|error]", Short: "show or set the daemon's log level", Args: cobra.MaximumNArgs(1),
		Long:      "Prints the log level of the daemon, or sets it until the daemon restarts.",
		ValidArgs: logLevels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !slices.Contains(logLevels, args[0]) {
				return fail(exitUsage, "%q is not a log level; write debug, info, warn or error", args[0])
			}
			return a.withDaemon(cmd.Context(), func(c *client) error {
				if len(args) == 1 {
					return c.call(cmd.Context(), "SetLogLevel", nil, args[0])
				}
				var v dbus.Variant
				if err := c.callOn(cmd.Context(), api.Root, "org.freedesktop.DBus.Properties.Get", []any{&v}, api.Manager, "LogLevel"); err != nil {
					return err
				}
				fmt.Fprintln(a.out, strings.Trim(v.String(), `"`))
				return nil
			})
		},
	}
}

func (a *app) smCmd() *cobra.Command {
	sm := &cobra.Command{
		Use: "sm", Short: "the subnet manager: status, start, stop; the fabric: topology, paths",
		Long: `Every InfiniBand subnet needs a subnet manager, which assigns addresses and
routes: in a switch, or on one host. With [SubnetManager] Manage=auto in a unit
this host starts one when there is none on the subnet of a port, and stops it when
one of higher priority is master.`,
	}
	sm.AddCommand(
		&cobra.Command{
			Use: "status [PORT...]", Short: "subnet manager of each port, whether this host runs it, and why",
			Long: `Prints for each InfiniBand port the phase of its subnet manager and the reason.
The phases are those of the property Phase in org.ibnetwork1(5), or unknown if the
daemon does not answer on the bus: a subnet manager that it started may still run.

For named ports, and with --json, root and the group ibnetsm also get the routes of an
ibnetsm that is master there: the engine, how many pairs of hosts use the busiest link
between switches, how many would at best, and, if that is far from the best, why the
engine is not ftree.`,
			Annotations:       map[string]string{paged: "yes"},
			ValidArgsFunction: a.completePorts,
			RunE: func(cmd *cobra.Command, args []string) error {
				d, err := a.describe(cmd.Context())
				if err != nil {
					return err
				}
				sms := d.SubnetManagers
				ports, missing := pickPorts(d, args)
				if len(args) > 0 {
					sms = []smctl.Status{}
					for _, p := range ports {
						if s := findSM(d, p.IBDevice, p.Port); s != nil {
							sms = append(sms, *s)
						}
					}
				}
				if len(ports) == 0 && missing != nil {
					return missing
				}
				a.nameMasters(cmd.Context(), sms)
				managers := make([]answer.Manager, len(sms))
				for i, s := range sms {
					managers[i].Status = s
					if a.root == "" && a.recorded == "" {
						askRoutes(cmd.Context(), &managers[i], queryRouting)
					}
				}
				if a.json {
					return cmp.Or(a.emit(answer.Managers{Schema: answer.Schema, SubnetManagers: managers}), missing)
				}
				if len(sms) == 0 && missing == nil {
					fmt.Fprintln(a.out, "No InfiniBand port is managed: no unit with a [SubnetManager] section matches one.")
					return nil
				}
				if len(args) == 0 {
					a.smTable(sms)
					return nil
				}
				for _, m := range managers {
					a.smDetail(m)
				}
				return missing
			},
		},
		a.smStartCmd(),
		&cobra.Command{
			Use: "stop PORT", Short: "stop the subnet manager on a port and keep it stopped", Args: cobra.ExactArgs(1),
			Long: "Stops the subnet manager on the port. If a unit manages the port, it stays stopped until ibnetctl sm " +
				"start, which returns the port to its unit.",
			ValidArgsFunction: one(a.completePorts),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.withDaemon(cmd.Context(), func(c *client) error {
					return c.call(cmd.Context(), "StopSubnetManager", nil, c.portName(cmd.Context(), args[0]))
				})
			},
		},
		a.topologyCmd(),
		a.smExplainCmd(),
		a.smWhatIfCmd(),
		a.smDumpCmd(),
		a.smDrainCmd(),
		a.smUndrainCmd(),
	)
	return sm
}

func (a *app) smDetail(s answer.Manager) {
	fmt.Fprintf(a.out, "%s: %s\n", a.paint(bold, fmt.Sprintf("%s/%d", s.IBDevice, s.Port)), s.Phase)
	a.field("Why", s.Reason)
	a.nextStep(s.Next)
	a.known("Bad file", s.FileProblem)
	a.field("Manage", fmt.Sprintf("%s (engine %s)", s.Manage, s.Engine))
	a.known("Unit", s.Unit)
	if s.Worker != "" {
		since := ""
		if !s.WorkerSince.IsZero() {
			since = s.WorkerSince.Local().Format(" since 2006-01-02 15:04:05")
		}
		a.field("Worker", fmt.Sprintf("%s, %s%s, started %d %s by this daemon", s.Worker, cmp.Or(s.WorkerState, stateUnknown), since, s.Starts,
			plural(s.Starts, "time", "times")))
	}
	a.known("Status", s.WorkerText)
	if s.Routes != nil {
		a.field("Routes", s.Routes.Words)
	}
	a.known("By hand", s.Override)
	if m := s.Master; m != nil {
		a.field("Master", masterWords(m))
	} else if s.MasterUnknown != "" {
		a.field("Master", s.MasterUnknown)
	}
	// One that has passed was put off: what it would show had not changed.
	if s.NextCheck.After(time.Now()) {
		a.field("Next check", s.NextCheck.Local().Format("15:04:05"))
	}
	fmt.Fprintln(a.out)
}
