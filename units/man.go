package units

import (
	"fmt"
	"strings"
)

// ManPage renders ibnetwork(5) in the man macros, its key list from the schema.
func ManPage() []byte {
	var b strings.Builder
	b.WriteString(manHead)
	for i := range schema {
		s := &schema[i]
		fmt.Fprintf(&b, ".SH [%s] SECTION\n%s\n", strings.ToUpper(s.Name), roff(s.Doc))
		if s.Repeat {
			b.WriteString(".PP\nThe section may be repeated: each header makes a new one.\n")
		}
		for k := range s.Keys {
			key := &s.Keys[k]
			fmt.Fprintf(&b, ".TP\n.BR %s=\\fI%s\\fR\n%s\n", roff(key.Name), roff(strings.ReplaceAll(key.Syntax, " ", "\u00a0")), roff(key.Doc))
			var notes []string
			if key.Default != "" {
				notes = append(notes, "Default: "+key.Default+".")
			}
			if key.List {
				notes = append(notes, "May be given several times; an empty assignment resets the list.")
			}
			if key.Networkd {
				notes = append(notes, "As in systemd.network(5).")
			}
			if len(notes) > 0 {
				b.WriteString(roff(strings.Join(notes, " ")) + "\n")
			}
			fmt.Fprintf(&b, ".br\nExample:\n.B %s=%s\n", roff(key.Name), roff(strings.ReplaceAll(key.Example, " ", "\u00a0")))
		}
	}
	b.WriteString(manTail)
	return []byte(b.String())
}

// roff escapes text for the man macros.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\u00a0", `\ `, "'", `\(aq`, `"`, `\(dq`, "~", `\(ti`, "^", `\(ha`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

const manHead = `.\" Generated from the schema table: go generate ./units
.TH IBNETWORK 5 "" ibnetworkd "File formats"
.ad l
.SH NAME
ibnetwork \- configuration of InfiniBand and RoCE links
.SH SYNOPSIS
.nf
/etc/systemd/network/\fINAME\fR.ibnetwork
/run/systemd/network/\fINAME\fR.ibnetwork
/usr/local/lib/systemd/network/\fINAME\fR.ibnetwork
/usr/lib/systemd/network/\fINAME\fR.ibnetwork
\fINAME\fR.ibnetwork.d/*.conf
.fi
.SH DESCRIPTION
A file whose name ends in
.I .ibnetwork
says which links it is for and what they are to be.
.BR ibnetworkd (8)
reads it and keeps the links so.
.BR systemd\-networkd (8)
ignores the suffix, so that the files of both live in one directory.
.PP
All directories are searched; the files of all are sorted by name, whatever directory they are in, and a file hides those of the
same name in directories further down the list above. An empty file, or a link to
.IR /dev/null ,
masks a name. Files
.IB NAME .ibnetwork.d/*.conf
are read after
.IB NAME .ibnetwork
by the same rules. The first file that matches a link is the only one used for it.
.PP
The syntax is that of
.BR systemd.syntax (7):
sections in brackets, one
.IR KEY = VALUE
a line, comments that begin with # or ;, a backslash at the end of a line continues it. A value that cannot be understood is reported with
file, line and column and the value before it stays in force; an unknown key or section is reported and ignored, except where its name begins with
.IR X\- .
Booleans are 1, yes, true, on and 0, no, false, off. Sizes take K, M, G to the base of 1024. Time spans take us, ms, s, min, h, d, w; a bare number is seconds.
.PP
Without
.BR [Network] ,
.BR [Address] ,
.B [Route]
and
.B [RoutingPolicyRule]
only the InfiniBand or RoCE part of the link is configured, and the IP part is left to whoever manages it.
.PP
.B ibnetctl verify
prints every problem of the files,
.B ibnetctl cat
a file with its drop\-ins,
.B ibnetctl plan
what they would change.
`

const manTail = `.SH EXAMPLES
Connected mode with the largest MTU and one address, and a subnet manager where the fabric has none:
.PP
.nf
.RS
# /etc/systemd/network/10\-ib0.ibnetwork
[Match]
Name=ib0

[Link]
MTUBytes=max

[IPoIB]
Mode=auto

[Network]
Address=192.168.151.1/24

[SubnetManager]
Manage=auto
.RE
.fi
.PP
More are in
.IR /usr/share/doc/ibnetworkd/examples .
.SH SEE ALSO
.BR ibnetworkd (8),
.BR ibnetctl (1),
.BR ibnetsm (8),
.BR org.ibnetwork1 (5),
.BR systemd.network (5),
.BR systemd.syntax (7)
`
