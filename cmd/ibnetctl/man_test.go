package main

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write generated and golden files")

// tagged is an entry of a list in a help text: a word, and what it stands for.
var tagged = regexp.MustCompile(`(?m)^  (\S+) {2,}(.*(?:\n {4,}.*)*)$`)

func roff(s string) string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		if strings.TrimSpace(line) == "" {
			line = ".IP"
		}
		out = append(out, line)
	}
	return tagged.ReplaceAllStringFunc(strings.Join(out, "\n"), func(entry string) string {
		word, text, _ := strings.Cut(strings.TrimSpace(entry), " ")
		return ".RS\n.TP 10\n.B " + word + "\n" + strings.Join(strings.Fields(text), " ") + "\n.RE"
	})
}

func manFlags(b *strings.Builder, fs *pflag.FlagSet) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		arg, usage := pflag.UnquoteUsage(f)
		if arg != "" {
			name += "=" + strings.ToUpper(arg)
		}
		def := ""
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			def = " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, ".RS\n.TP\n.B %s\n%s.\n.RE\n", roff(name), roff(usage+def))
	})
}

func manCommands(b *strings.Builder, c *cobra.Command, prefix string) {
	for _, s := range c.Commands() {
		if s.Hidden || s.Name() == "help" {
			continue
		}
		if s.HasSubCommands() {
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(prefix+s.Name()), roff(s.Long))
			manCommands(b, s, prefix+s.Name()+" ")
			continue
		}
		text := s.Long
		if text == "" {
			text = strings.ToUpper(s.Short[:1]) + s.Short[1:] + "."
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(prefix+s.Use), roff(text))
		manFlags(b, s.LocalNonPersistentFlags())
	}
}

// page is ibnetctl(1), from the tree of commands that the program itself uses.
func page() string {
	root := (&app{}).command()
	var b strings.Builder
	b.WriteString(`.\" Generated from the commands: go test ./cmd/ibnetctl -run TestManPage -update
.TH IBNETCTL 1 "" ibnetworkd "User commands"
.SH NAME
ibnetctl \- show and control InfiniBand and RoCE links
.SH SYNOPSIS
.B ibnetctl
.RI [ options ]
.I COMMAND
.RI [ arguments ]
.SH DESCRIPTION
.B ibnetctl
shows the state of the InfiniBand and RoCE links of this host and why a link differs from its
.BR ibnetwork (5)
file, and controls
.BR ibnetworkd (8)
and the subnet manager.
.PP
A
.I LINK
is a network interface such as ib0, a
.I PORT
an RDMA port such as mlx5_0/1, also by the name of its link.
Commands that only read also work without the daemon:
.B ibnetctl
then reads the system itself, and prints that it does.
.PP
Start with
.BR "ibnetctl status" ,
.B "ibnetctl diagnose"
and
.BR "ibnetctl plan" .
.SH OPTIONS
`)
	var flags strings.Builder
	manFlags(&flags, root.PersistentFlags())
	b.WriteString(strings.NewReplacer(".RS\n", "", ".RE\n", "").Replace(flags.String()))
	b.WriteString(".SH COMMANDS\n")
	manCommands(&b, root, "")
	b.WriteString(`.SH EXIT STATUS
.TP
.B 0
Success; for
.B verify
and
.B diagnose
that there is no problem.
.TP
.B 1
The operation failed, or a problem was found.
.TP
.B 2
Wrong usage.
.TP
.B 3
The command needs the daemon, which is not running.
.TP
.B 4
Not permitted: the command requires root, or one of the polkit actions in
.BR ibnetworkd (8).
.TP
.B 5
No such link, port, unit or file.
.TP
.B 6
Timeout
.RB ( wait\-online ,
or no answer from the daemon).
.TP
.B 7
.BR diagnose :
nothing is blocked, but a unit file has an error.
.TP
.B 8
.BR diagnose :
the system could not be read.
.SH JSON
With
.B \-\-json
every command prints one JSON object (monitor: one per line) with the key
.BR schema ,
which is 1.
Keys may be added; the number changes when a key is removed or changes its meaning.
.B status
without arguments prints the object of Describe in
.BR org.ibnetwork1 (5).
A command without other output prints
.BR ok ;
a command that fails prints
.BR code ,
the exit status, and
.BR error ,
the message that it also prints to standard error.
All keys of all commands are in
.I /usr/share/doc/ibnetworkd/json.md
and, as a JSON Schema, in
.IR ibnetctl.schema.json
beside it.
.SH ENVIRONMENT
.TP
.B VISUAL\fR,\fP EDITOR
The editor of
.BR edit .
.TP
.B NO_COLOR
If set, no colours; they are used on a terminal only.
.TP
.B DBUS_SYSTEM_BUS_ADDRESS
The bus to use instead of the system bus.
.SH EXAMPLES
.nf
ibnetctl diagnose mlx5_0/1
ibnetctl diagnose --unit 10-ib0; echo $?
ibnetctl status ib0
ibnetctl try ./10-ib0.ibnetwork
ibnetctl wait-online -i ib0 --timeout 30s
ibnetctl capture host.json --hide addresses
ibnetctl plan --from host.json
ibnetctl report
ibnetctl --report ibnetwork-report-20260102-030405.tar.gz status
.fi
.SH SEE ALSO
.BR ibnetworkd (8),
.BR ibnetwork (5),
.BR ibnetsm (8),
.BR org.ibnetwork1 (5),
.BR networkctl (1)
`)
	return b.String()
}

func TestManPage(t *testing.T) { golden(t, "../../docs/man/ibnetctl.1", page()) }
