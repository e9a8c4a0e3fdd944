package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// reloadCmd is for the service unit: a minimal system has no kill(1).
func reloadCmd() *cobra.Command {
	return &cobra.Command{Use: "reload PID", Short: "make a running ibnetsm read its files again", Args: cobra.ExactArgs(1),
		Long: "Sends SIGHUP to the ibnetsm with this process id.",
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return fmt.Errorf("%q is not a process id", args[0])
			}
			// A number that another process has by now gets no signal.
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err != nil || strings.TrimSpace(string(b)) != "ibnetsm" {
				return fmt.Errorf("process %d is not an ibnetsm", pid)
			}
			if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
				return fmt.Errorf("signal process %d: %w", pid, err)
			}
			return nil
		}}
}
