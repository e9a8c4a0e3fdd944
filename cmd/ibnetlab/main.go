// Command ibnetlab is the hardware-free lab for people: it builds the guests,
// gives a prompt in one, and lists and runs the scenarios.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"ibnetworkd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ibnetlab:", err)
		os.Exit(exitStatus(err))
	}
}

// exitStatus is that of the program that failed, such as go test, otherwise cli.ExitUsage or 1.
func exitStatus(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if cli.IsUsage(err) {
		return cli.ExitUsage
	}
	return 1
}
