package main

import (
	"errors"
	"fmt"
	"strings"

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
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "explain a command", Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c, _, err := root.Find(args)
			if err != nil {
				return err
			}
			return c.Help()
		}})
	root.AddCommand(runCmd(), verifyCmd(), statusCmd(), topologyCmd(), metricsCmd(), resweepCmd(), reloadCmd(), dumpCmd())
	cli.Wrap(root, fmt.Errorf)
	return root
}
