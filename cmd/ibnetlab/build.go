package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ibnetworkd/lab"
	"ibnetworkd/lab/build"
)

func buildCommand() *cobra.Command {
	var sanitize, qemu bool
	c := &cobra.Command{
		Use:   "build",
		Short: "build kernel, fabric module and Debian userland of the guests",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := build.New(os.Stderr)
			if err != nil {
				return err
			}
			return buildAll(cmd.Context(), cmd.OutOrStdout(), b, sanitize, qemu)
		},
	}
	c.Flags().BoolVar(&sanitize, "sanitize", false, "also build the kernel with KASAN, lockdep and kmemleak")
	c.Flags().BoolVar(&qemu, "qemu", false, "also install Debian's own kernels for QEMU")
	return c
}

// buildAll builds what guests boot, and prints where it is.
func buildAll(ctx context.Context, out io.Writer, b *build.Builder, sanitize, qemu bool) error {
	kernels := []func() (*build.Kernel, error){func() (*build.Kernel, error) { return b.Kernel(ctx, build.UML) }}
	if sanitize {
		kernels = append(kernels, func() (*build.Kernel, error) { return b.Kernel(ctx, build.Sanitize) })
	}
	if qemu {
		kernels = append(kernels, func() (*build.Kernel, error) { return b.DebianKernel(ctx, build.Series) },
			func() (*build.Kernel, error) { return b.DebianKernel(ctx, "6.12") })
	}
	for _, f := range kernels {
		k, err := f()
		if err != nil {
			return err
		}
		m, err := b.Module(ctx, k, "swib", lab.SwibSource())
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "kernel    %s\nmodule    %s\n", k.Image, m)
	}
	r, err := b.Rootfs(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "userland  %s\n", r)
	return nil
}
