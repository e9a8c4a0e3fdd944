package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/importer"
	"ibnetworkd/units"
)

// importPaths is where other tools keep what can be imported.
var importPaths = []string{
	"/etc/sysconfig/network-scripts/ifcfg-ib*", "/etc/sysconfig/network/ifcfg-ib*", "/etc/NetworkManager/system-connections/*", "/etc/netplan/*.yaml",
	"/etc/network/interfaces", "/etc/network/interfaces.d/*", "/etc/ipoibmodemtu.conf", "/etc/infiniband/openib.conf", "/etc/rdma/mlx4.conf",
	"/etc/modprobe.d/mlx4*.conf", "/etc/default/opensm", "/etc/sysconfig/opensm", "/etc/opensm/opensm.conf", "/etc/opensm/partitions.conf",
}

func (a *app) importCmd() *cobra.Command {
	var write bool
	c := &cobra.Command{
		Use: "import [FILE...]", Short: "turn other tools' configuration into unit files",
		Long: `Reads what RHEL's ifcfg-ib*, NetworkManager keyfiles, netplan, Debian's
interfaces, ipoibmodemtu.conf, openib.conf, mlx4 port types and opensm's settings
say about InfiniBand links, and prints the .ibnetwork files that do the same, and
every line that was not carried over, with the reason. Without FILEs the usual
places are read. Nothing of the other tool is changed; --write puts the units
into /etc/systemd/network.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var sources []importer.Source
			names := args
			if len(args) == 0 {
				for _, p := range importPaths {
					found, _ := filepath.Glob(a.path(p))
					names = append(names, found...)
				}
				if len(names) == 0 {
					return fail(exitNoSuch, "nothing to import was found in the usual places; name the files")
				}
			}
			for _, n := range names {
				f, err := os.Open(n)
				if err != nil {
					if len(args) == 0 && os.IsPermission(err) {
						fmt.Fprintln(a.err, err)
						continue
					}
					return opening(err)
				}
				text, err := io.ReadAll(io.LimitReader(f, importer.MaxSize+1))
				f.Close()
				if err != nil {
					return err
				}
				if n, err = a.within(n); err != nil {
					return err
				}
				sources = append(sources, importer.Source{Path: n, Text: string(text)})
			}
			r := importer.Import(sources)
			target := func(u importer.Unit) string { return a.path(filepath.Join(units.Dirs[0], u.Name)) }
			switch {
			case write:
				// All of them or none.
				for _, u := range r.Units {
					if _, err := os.Lstat(target(u)); err == nil {
						return fail(exitFailure, "%s exists: move it away first; nothing was written", target(u))
					} else if !errors.Is(err, fs.ErrNotExist) {
						return err
					}
				}
				for _, u := range r.Units {
					if err := putFile(target(u), []byte(u.Text)); err != nil {
						return err
					}
					fmt.Fprintln(a.err, "wrote", target(u))
				}
			case a.json:
				if err := a.emit(answer.Import{Schema: answer.Schema, Units: jsonUnits(r.Units), Left: append([]importer.Left{}, r.Left...), Notes: append([]string{}, r.Notes...)}); err != nil {
					return err
				}
			default:
				for i, u := range r.Units {
					if i > 0 {
						fmt.Fprintln(a.out)
					}
					fmt.Fprintf(a.out, "%s\n%s", a.paint(bold, "### "+u.Name), u.Text)
				}
			}
			if write || !a.json {
				for _, l := range r.Left {
					fmt.Fprintln(a.err, "not carried over:", l)
				}
				for _, n := range r.Notes {
					fmt.Fprintln(a.err, "to do:", n)
				}
			}
			if write && len(r.Units) > 0 {
				fmt.Fprintln(a.err, "next: ibnetctl verify; ibnetctl plan; ibnetctl reload")
			}
			if len(r.Units) == 0 {
				return &exitError{code: exitFailure}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&write, "write", false, "write the units to /etc/systemd/network instead of printing them")
	return c
}

func jsonUnits(us []importer.Unit) []answer.ImportedUnit {
	out := []answer.ImportedUnit{}
	for _, u := range us {
		out = append(out, answer.ImportedUnit{Name: u.Name, Text: u.Text})
	}
	return out
}
