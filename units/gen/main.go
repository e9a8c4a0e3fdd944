// Command gen writes the manual page of unit files from the schema table.
package main

import (
	"fmt"
	"os"

	"ibnetworkd/units"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], units.ManPage(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
