package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/sm/dump"
	"ibnetworkd/smctl/probe"
)

// dumpForms are what sm dump prints, by the names of opensm's files without opensm.
var dumpForms = []string{"lfts", "fdbs", "mcfdbs", "guid2lid"}

func (a *app) smDumpCmd() *cobra.Command {
	var o routesOptions
	c := &cobra.Command{
		Use: "dump " + strings.Join(dumpForms, "|"), Short: "print forwarding tables or LIDs in a format of opensm", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{paged: "yes"},
		Long: `Prints what opensm writes to a file, for the programs that read that file:

  lfts      opensm-lfts.dump: the forwarding table of each switch; opensm
            routes by it with -R file -U FILE
  fdbs      opensm.fdbs: the same, with hops, and whether there is a shorter way
  mcfdbs    opensm.mcfdbs: the multicast forwarding tables
  guid2lid  the LID of each port, as opensm keeps them for its next start

The tables are those of the switches, read from a port of this host with subnet
management packets, which needs root. With --file they are computed as ibnetsm
would, except multicast tables; files with hints for routes need --file.`,
		ValidArgs: dumpForms,
		RunE: func(cmd *cobra.Command, args []string) error {
			form := args[0]
			switch {
			case !slices.Contains(dumpForms, form):
				return fail(exitUsage, "%q is not one of %s", form, strings.Join(dumpForms, ", "))
			case form == "mcfdbs" && o.file != "":
				return fail(exitUsage, "mcfdbs: the members of groups are not in a file; leave --file out to read the live fabric")
			}
			if o.tablesOnly = o.file == ""; o.tablesOnly && o.hints.given() {
				return fail(exitUsage, "hints for routes go with --file: of the live fabric the tables are read as they are")
			}
			return a.withRoutes(cmd, &o, func(ctx context.Context, conn probe.Conn, r *fabricRoutes) error {
				var b bytes.Buffer
				to := io.Writer(a.out)
				if a.json {
					to = &b
				}
				if err := a.dump(ctx, conn, to, form, r); err != nil {
					return err
				}
				if a.json {
					return a.emit(answer.Dump{Schema: answer.Schema, Form: form, Text: b.String()})
				}
				return nil
			})
		},
	}
	o.flags(a, c)
	return c
}

// dump writes one form. What could not be read is an error after the rest.
func (a *app) dump(ctx context.Context, conn probe.Conn, to io.Writer, form string, r *fabricRoutes) error {
	f := r.Fabric
	var missing []string
	note := func(sw int32) { missing = append(missing, f.Nodes[f.Switches[sw].Node].Name()) }
	if form == "lfts" || form == "fdbs" {
		for s := range f.Switches {
			if s >= len(r.LFT) || r.LFT[s] == nil {
				note(int32(s))
			}
		}
	}
	var err error
	switch form {
	case "lfts":
		err = dump.LFTs(to, f, r.LFT)
	case "fdbs":
		err = dump.FDBs(to, f, r.LFT)
	case "mcfdbs":
		t, silent, e := probe.Multicast(ctx, conn, f)
		if e != nil {
			return e
		}
		for _, s := range silent {
			note(s)
		}
		err = dump.MFTs(to, f, t)
	case "guid2lid":
		err = dump.GUID2LID(to, f)
	}
	if err == nil && len(missing) > 0 {
		err = fail(exitFailure, "the tables of %d %s could not be read: %s; run the command again", len(missing),
			plural(len(missing), "switch", "switches"), listed(missing))
	}
	return err
}
