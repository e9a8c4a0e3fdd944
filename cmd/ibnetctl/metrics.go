package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/metrics"
	"ibnetworkd/internal/kernel/sysfs"
)

// metricsSocket is where the daemon serves metrics.
const metricsSocket = stateDir + "/" + metrics.Socket

// maxMetrics bounds what is read of the daemon's metrics.
const maxMetrics = 64 << 20

func (a *app) metricsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "metrics", Short: "print metrics in Prometheus text format", Args: cobra.NoArgs,
		Long: `Prints the metrics of /run/ibnetworkd/metrics.sock. Without a daemon to serve it,
the metrics that can be read now are printed: states and the adapters' counters,
without those that are counted over time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", a.path(metricsSocket))
			}}}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/metrics", nil)
			if err != nil {
				return err
			}
			if r, err := client.Do(req); err == nil {
				defer r.Body.Close()
				if r.StatusCode != http.StatusOK {
					return fmt.Errorf("the daemon answered %s", r.Status)
				}
				text, err := io.ReadAll(io.LimitReader(r.Body, maxMetrics))
				if err != nil {
					return err
				}
				return a.printMetrics(text)
			}
			quiet := *a
			quiet.json = true
			d, err := quiet.describe(ctx)
			if err != nil {
				return err
			}
			now := time.Now()
			c := metrics.NewObserved(d.Version, sysfs.New("").PortCounters)
			c.ObservePorts(now, d.Ports)
			c.ObserveLinks(d.Links, nil)
			if d.Source != "observed" {
				c.ObserveSM(d.SubnetManagers)
			}
			c.Reloaded(len(d.Problems))
			return a.printMetrics(c.Text(now))
		},
	}
}

func (a *app) printMetrics(text []byte) error {
	if a.json {
		return a.emit(answer.Metrics{Schema: answer.Schema, Text: string(text)})
	}
	_, err := a.out.Write(text)
	return err
}
