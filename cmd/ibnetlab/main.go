// Command ibnetlab is the hardware-free lab for people: it builds the guests,
// gives a prompt in one, and runs the scenarios.
package main

import (
	"context"
	"fmt"
	"os"

	"ibnetworkd/lab"
	"ibnetworkd/lab/build"
)

func main() {
	b, err := build.New(os.Stderr)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	k, err := b.Kernel(ctx, build.UML)
	fmt.Println(k, err)
	m, err := b.Module(ctx, k, "swib", lab.SwibSource())
	fmt.Println(m, err)
	r, err := b.Rootfs(ctx)
	fmt.Println(r, err)
}
