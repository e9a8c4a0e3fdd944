// ibnetsm is the subnet manager that ibnetworkd starts for ports in Initialize;
// it also runs on its own.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := rootCmd().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "ibnetsm:", err)
		os.Exit(1)
	}
}
