// ibnetsm is the subnet manager that ibnetworkd starts for Initializing ports;
// it also runs on its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"ibnetworkd/internal/cli"
	"ibnetworkd/sm/transport"
)

// Exit statuses that ibnetsm@.service and ibnetworkd know.
const (
	exitNoQP0   = 4  // the port does not permit a subnet manager
	exitRestart = 75 // restart with changed settings
)

func main() {
	if err := rootCmd().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "ibnetsm:", err)
		sd.SdNotify(false, "STATUS="+firstLine(err))
		switch {
		case errors.Is(err, transport.ErrNoQP0):
			os.Exit(exitNoQP0)
		case errors.Is(err, errRestart):
			os.Exit(exitRestart)
		case cli.IsUsage(err):
			os.Exit(cli.ExitUsage)
		}
		os.Exit(1)
	}
}
