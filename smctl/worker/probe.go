package worker

import (
	"context"

	"ibnetworkd/ib"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/probe"
)

// Umad queries through the kernel's umad devices, opened for each question: one
// that stays open would keep a removed adapter's driver.
type Umad struct{}

// Walk implements Prober.
func (Umad) Walk(ctx context.Context, ibdev string, port int) ([]smctl.SMInfo, error) {
	d, err := probe.Open(ctx, ibdev, port)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return probe.Walk(ctx, d)
}

// AskLID implements Prober.
func (Umad) AskLID(ctx context.Context, ibdev string, port int, lid ib.LID) ([]smctl.SMInfo, error) {
	d, err := probe.Open(ctx, ibdev, port)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return probe.AskLID(ctx, d, lid)
}
