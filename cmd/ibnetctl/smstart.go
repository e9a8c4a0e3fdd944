package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/smctl"
)

const (
	// smPoll is how often the daemon is asked how far a start is.
	smPoll = 200 * time.Millisecond
	// smAgain is how long after the call what stopped an earlier start may still
	// be what the daemon says.
	smAgain = time.Second
)

func (a *app) smStartCmd() *cobra.Command {
	var noWait, verbose bool
	var timeout *time.Duration
	c := &cobra.Command{
		Use: "start PORT", Short: "run the subnet manager on a port until ibnetctl sm stop", Args: cobra.ExactArgs(1),
		Long: `Starts the subnet manager on the port regardless of the unit, and keeps it running
until ibnetctl sm stop. If a master of higher priority exists, it stays standby.
After ibnetctl sm stop it returns the port to its unit instead.

The command ends when this or another subnet manager serves the port. If it cannot
start, the reason is printed and the exit status is 1.`,
		ValidArgsFunction: one(a.completePorts),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDaemon(cmd.Context(), func(c *client) error {
				port := c.portName(cmd.Context(), args[0])
				if err := c.call(cmd.Context(), "StartSubnetManager", nil, port); err != nil {
					return err
				}
				if noWait {
					return nil
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
				defer cancel()
				return a.smStarted(ctx, c, port, verbose)
			})
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the port is served")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "print each step")
	timeout = timeoutFlag(c, time.Minute, "stop waiting after `TIME`; the start continues")
	return c
}

// portName is how the daemon names the port that is meant; it refuses what means none.
func (c *client) portName(ctx context.Context, word string) string {
	if d, err := c.describe(ctx); err == nil {
		if p := findPort(d, word); p != nil {
			return fmt.Sprintf("%s/%d", p.IBDevice, p.Port)
		}
	}
	return word
}

// smStarted waits until the subnet manager of the port runs, or cannot.
func (a *app) smStarted(ctx context.Context, c *client, port string, verbose bool) error {
	p := a.newProgress(verbose)
	defer p.done()
	begin := time.Now()
	t := time.NewTicker(smPoll)
	defer t.Stop()
	last := "the daemon has not reported it yet"
	for {
		d, err := c.describe(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			if s := smOf(d, port); s != nil {
				if last = fmt.Sprintf("%s: %s", s.Phase, s.Reason); s.Next != "" {
					last += "; next: " + s.Next
				}
				if end, ok := startEnds(s.Phase, time.Since(begin)); end {
					p.done()
					if ok {
						if !a.json {
							fmt.Fprintf(a.err, "%s: %s\n", port, last)
						}
						return nil
					}
					return fail(exitFailure, "%s: %s", port, last)
				}
			}
			p.show("waiting for the subnet manager on " + port + ", " + last)
		}
		select {
		case <-ctx.Done():
			return fail(exitTimeout, "%s: no subnet manager serves the port yet: %s; for its state: ibnetctl sm status %s", port, last, port)
		case <-t.C:
		}
	}
}

func smOf(d *api.Description, port string) *smctl.Status {
	if p := findPort(d, port); p != nil {
		return findSM(d, p.IBDevice, p.Port)
	}
	return nil
}

// startEnds reports whether a start is over in a phase that is reported some time
// after the call, and whether the port is served then.
func startEnds(phase smctl.Phase, after time.Duration) (end, ok bool) {
	switch phase {
	case smctl.PhaseMaster, smctl.PhaseStandby, smctl.PhaseServed:
		return true, true
	case smctl.PhaseUnserved:
		return after > smAgain, true
	case smctl.PhaseBackingOff, smctl.PhaseBlocked, smctl.PhaseNoLink,
		smctl.PhaseNoQP0, smctl.PhaseSMDisabled, smctl.PhaseNVSwitch, smctl.PhaseOmniPath:
		return after > smAgain, false
	}
	return false, false
}
