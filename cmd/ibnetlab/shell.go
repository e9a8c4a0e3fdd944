package main

import (
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
	"ibnetworkd/lab/build"
)

// shellFlags are the flags of shell, and the guest that they describe.
type shellFlags struct {
	topology, around, at string
	files                []string
	systemd, qemu        bool
	hosts, cable, number int
	config               lab.Config
}

func shellCommand() *cobra.Command {
	o := shellFlags{config: lab.Config{Userland: lab.Debian}}
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "boot a guest with a prompt",
		Example: `  ibnetlab shell                                    # two adapters at a switch; sm starts opensm
  ibnetlab shell --systemd --hcas 4 --ports 2       # ibnetworkd is installed and runs
  ibnetlab shell --systemd --hosts 2                # two hosts and a cable; Ctrl-] switches
  ibnetlab shell --systemd --file /etc/systemd/network/10-ib.ibnetwork=ib.ibnetwork
  ibnetlab shell --topology fabric.txt              # output of ibnetdiscover, or of ibnetlab topology
  ibnetlab shell --fabric big.txt --at S-0001/19    # one host among thousands of simulated ones`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.hosts != 0 {
				return several(cmd.Context(), o.hosts, sameFlags(cmd.Flags()))
			}
			if err := o.complete(); err != nil {
				return err
			}
			if w, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
				os.Setenv("COLUMNS", strconv.Itoa(int(w.Col)))
				os.Setenv("LINES", strconv.Itoa(int(w.Row)))
			}
			if o.cable != 0 {
				return lab.ShellOnCable(cmd.Context(), os.Stderr, o.config, os.NewFile(uintptr(o.cable), "cable"), o.number)
			}
			if o.around != "" {
				text, err := os.ReadFile(o.around)
				if err != nil {
					return err
				}
				return lab.ShellOnFabric(cmd.Context(), os.Stderr, o.config, o.around, string(text), o.at)
			}
			return lab.Shell(cmd.Context(), os.Stderr, o.config)
		},
	}
	o.bind(cmd)
	return cmd
}

// sameFlags are the flags that were given, without --hosts, for the shell of one host.
func sameFlags(given *pflag.FlagSet) (args []string) {
	given.Visit(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case pflag.SliceValue:
			for _, s := range v.GetSlice() {
				args = append(args, "--"+f.Name+"="+s)
			}
		default:
			if f.Name != "hosts" {
				args = append(args, "--"+f.Name+"="+f.Value.String())
			}
		}
	})
	return args
}

// complete checks the flags and fills in the configuration of the guest.
func (o *shellFlags) complete() (err error) {
	c := &o.config
	if o.topology != "" {
		text, err := os.ReadFile(o.topology)
		if err != nil {
			return err
		}
		if _, err := lab.Topology(o.topology, string(text)); err != nil {
			return err // the place in the file, before anything boots
		}
		c.Topology = string(text)
	}
	if o.systemd {
		c.Userland = lab.Systemd
		// Without the daemon it is a host on which nothing is installed yet.
		c.Installed = slices.ContainsFunc(c.Bins, func(bin string) bool { return path.Base(bin) == "ibnetworkd" })
	}
	if c.Files, err = guestFiles(o.files); err != nil {
		return err
	}
	switch {
	case o.qemu:
		c.Machine = lab.QEMU
	case c.Series != "":
		return errors.New("--series requires --qemu")
	}
	if o.at != "" && o.around == "" {
		return errors.New("--at requires --fabric")
	}
	if c.HCAs == 0 {
		return errors.New("--hcas 0: want 1 or more, or -1 for no fabric")
	}
	return nil
}

func (o *shellFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.topology, "topology", "", "boot with the fabric of `FILE`, in ibnetdiscover's format")
	f.StringVar(&o.around, "fabric", "", "boot one host of the fabric of `FILE`, whose other nodes are simulated: any size")
	f.StringVar(&o.at, "at", "", "with --fabric: `NAME/PORT` of a free port of a switch or of an adapter (default: the first adapter)")
	f.BoolVar(&o.systemd, "systemd", false, "run systemd, udev and D-Bus, with ibnetworkd installed and enabled as by its package")
	f.StringArrayVar(&o.files, "file", nil, "`GUESTPATH=LOCALFILE` to copy into the guest, executable if it begins with #!; may be repeated")
	f.IntVar(&o.hosts, "hosts", 0, "boot `N` hosts, each with its own kernel and prompt: two with a cable, up to 8 at a switch; "+
		"Ctrl-] switches")
	f.IntVar(&o.cable, "cable-fd", 0, "file descriptor of the end of a cable")
	f.IntVar(&o.number, "host-number", 0, "number of this host")
	_ = f.MarkHidden("cable-fd")
	_ = f.MarkHidden("host-number")
	f.BoolVar(&o.qemu, "qemu", false, "run Debian's own kernel in QEMU")
	f.StringVar(&o.config.Series, "series", "", "kernel `SERIES` with --qemu: "+strings.Join(build.AllSeries, " or ")+" (default "+
		build.Series+")")
	f.IntVar(&o.config.HCAs, "hcas", 2, "`NUMBER` of adapters")
	f.IntVar(&o.config.Ports, "ports", 1, "`NUMBER` of ports of each adapter")
	f.BoolVar(&o.config.Cabled, "cabled", false, "cable adapters 2n and 2n+1 instead of using a switch")
	f.StringVar(&o.config.Swib, "swib", "", "more `PARAMETERS` of the fabric module")
	f.IntVar(&o.config.Memory, "memory", 0, "memory in `MiB`")
	// A fabric defines its own adapters.
	for _, fabric := range []string{"topology", "fabric", "hosts"} {
		for _, own := range []string{"hcas", "ports", "cabled"} {
			cmd.MarkFlagsMutuallyExclusive(fabric, own)
		}
	}
	cmd.MarkFlagsMutuallyExclusive("topology", "fabric", "hosts")
	cmd.MarkFlagsMutuallyExclusive("hosts", "qemu")
	f.StringSliceVar(&o.config.Bins, "bin", lab.Programs,
		"`PROGRAM` for the guest: import paths or files; without an ibnetworkd, --systemd installs nothing")
}
