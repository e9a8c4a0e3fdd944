package main

import (
	"github.com/spf13/cobra"

	"ibnetworkd/internal/cli"
)

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "ibnetlab",
		Short:         "a real InfiniBand stack on real kernels, without hardware",
		SilenceUsage:  true,
		SilenceErrors: true,

		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().BoolP("help", "h", false, "print this help")
	root.AddCommand(buildCommand(), shellCommand(), listCommand(), runCommand(), flakesCommand(), topologyCommand())
	cli.Wrap(root)
	return root
}
