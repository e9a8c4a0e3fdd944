package main

import (
	"errors"

	"github.com/spf13/cobra"

	"ibnetworkd/internal/cli"
	"ibnetworkd/internal/version"
)

// dumpCmd names the command that writes tables, for users who expect it here.
func dumpCmd() *cobra.Command {
	return &cobra.Command{Use: "dump", Hidden: true, DisableFlagParsing: true,
		Short: "name the command that writes tables", Long: "Names the command that writes tables, LIDs and groups: ibnetctl sm dump.",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("tables, LIDs and multicast groups are written by: ibnetctl sm dump")
		}}
}

func rootCmd() *cobra.Command {
	root := &cobra.Command{
		Use: "ibnetsm", Version: version.String(),
		Short: "InfiniBand subnet manager", Long: "Manages InfiniBand subnets, and queries the subnet manager that runs.",
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().BoolP("help", "h", false, "print this help")
	root.Flags().Bool("version", false, "print the version")
	root.AddCommand(runCmd(), verifyCmd(), statusCmd(), topologyCmd(), metricsCmd(), resweepCmd(), reloadCmd(), dumpCmd())
	cli.Wrap(root)
	return root
}
