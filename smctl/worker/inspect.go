package worker

import (
	"context"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/smctl"
)

// inspect reads what bars subnet managers from a port.
func (c *Controller) inspect(ctx context.Context, g ib.GUID, e *entry, now time.Time) {
	if c.cfg.Inspect == nil {
		e.bar, e.final = new(smctl.Bar), true
	}
	if e.bar != nil && e.final || e.inspect || now.Before(e.again) {
		return
	}
	if e.refused > 0 {
		// The port has an issm device all the same: only a question can say it.
		c.ask(ctx, g, e, smctl.AskWalk)
		return
	}
	e.inspect = true
	dev, num := e.port.IBDev, e.port.Num
	go func() {
		got := make(chan event, 1)
		go func() {
			bar, final, err := c.cfg.Inspect(dev, num)
			if err != nil {
				c.cfg.Log.Warn("port type cannot be read", "port", fmt.Sprintf("%s/%d", dev, num), "error", err)
			}
			got <- event{guid: g, bar: &bar, final: final}
		}()
		unknown := smctl.BarUnknown
		ev := event{guid: g, bar: &unknown}
		select {
		case ev = <-got:
		case <-time.After(checkTimeout):
		}
		c.send(ctx, ev)
	}()
}

// refusal counts questions and starts that were refused QP0. Such a port stays barred
// until a question got through and the port was inspected again: it has one phase.
func (e *entry) refusal(refused, got bool, now time.Time) {
	no := smctl.BarNoQP0
	switch {
	case refused:
		e.bar, e.final, e.again = &no, false, now.Add(min(inspectRetry<<min(e.refused, 8), refusedRetryMax))
		e.refused++
	case e.refused > 0 && got:
		e.refused, e.again = 0, time.Time{}
	case e.refused > 0:
		e.again = now.Add(inspectRetry)
	}
}

// inspected is the port with what bars it, by the kernel and by Inspect.
func (e *entry) inspected() smctl.Port {
	p := e.port.Port
	switch {
	case e.bar != nil && *e.bar != smctl.BarNone:
		p.Barred = *e.bar // a function without QP0 says IsSMDisabled too
	case e.bar == nil && p.Barred == smctl.BarNone:
		p.Barred = smctl.BarUnread
	}
	return p
}

// checkTimeout bounds the reading of files and of what a port is, inspectRetry is
// the pause before that is read again.
const (
	checkTimeout = 10 * time.Second
	inspectRetry = time.Minute
	// refusedRetryMax bounds the pause before a port that refused QP0 is asked again,
	// which each refusal doubles.
	refusedRetryMax = 15 * time.Minute
)
