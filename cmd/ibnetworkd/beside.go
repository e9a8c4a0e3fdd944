package main

import (
	"context"

	"ibnetworkd/daemon"
)

func init() {
	extraTasks = append(extraTasks, func(v env) task {
		return task{"other network managers", func(ctx context.Context) error {
			if err := daemon.Beside(ctx, "/", v.daemon.Wake); err != nil {
				v.log.Warn("links that other network managers let go are seen late", "error", err)
				<-ctx.Done()
			}
			return nil
		}}
	})
}
