// Ibnetctl shows and steers ibnetworkd: status, diagnose, plan, verify, the
// subnet manager. It asks the daemon over D-Bus; what only reads also works
// without the daemon, on a system that it reads by itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
