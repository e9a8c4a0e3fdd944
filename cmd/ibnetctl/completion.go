package main

import (
	"github.com/spf13/cobra"
)

// completionCmd prints the completion scripts; the packages install them.
func (a *app) completionCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "print a completion script for a shell", Args: cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish"}, Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			}
			return fail(exitUsage, "unknown shell %q: use bash, zsh or fish", args[0])
		},
	}
}
