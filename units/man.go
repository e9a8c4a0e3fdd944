package units

import (
	"fmt"
	"strings"
)

// ManPage renders ibnetwork(5) in the man macros, its key list from the schema.
func ManPage() []byte {
	var b strings.Builder
	b.WriteString(manHead)
	schema := Schema()
	for i := range schema {
		s := &schema[i]
		fmt.Fprintf(&b, ".SH [%s] SECTION\n%s\n", strings.ToUpper(s.Name), roff(s.Doc))
		if s.Repeat {
			b.WriteString(".PP\nThe section may be repeated: each header makes a new one.\n")
		}
		for k := range s.Keys {
			key := &s.Keys[k]
			fmt.Fprintf(&b, ".TP\n.BR %s=\\fI%s\\fR\n%s\n", roff(key.Name), roff(strings.ReplaceAll(key.Syntax, " ", "\u00a0")),
				roff(key.Doc))
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
same name in directories further down the list above. An empty file, or a link that ends at
.IR /dev/null ,
masks a name. Files
.IB NAME .ibnetwork.d/*.conf
are read after
.IB NAME .ibnetwork
by the same rules. The first file that matches a link is the only one used for it. Names that begin with a dot, and names with something
after the suffix (editors\(aq backups, what package managers leave), are not read.
.PP
The syntax is that of
.BR systemd.syntax (7):
sections in brackets, one
.IR KEY = VALUE
a line, comments that begin with # or ;, a backslash at the end of a line continues it. A value that cannot be understood is reported with
file, line and column and the value before it stays in force; an unknown key or section is reported and ignored, except where its
name begins with
.IR X\- .
Booleans are 1, y, yes, t, true, on and 0, n, no, f, false, off. Sizes take B, K, M, G, T, P, E to the base of 1024. Time spans are those of
.BR systemd.time (7);
a bare number is seconds.
.PP
A problem in
.B [Match]
(an unknown key, a bad item, a line without \(dq=\(dq) makes the unit match nothing until it is corrected. A file that is not
UTF\-8, has a line of
more than 1 MiB, a section header without its bracket, or no key in
.B [Match]
is refused as a whole; of a refused drop\-in nothing is used.
.PP
A unit that
.BR ibnetworkd (8)
has in force keeps its last good version, with all its drop\-ins, while one of its files is refused, has a problem in
.BR [Match] ,
ends in the middle of a line that is not understood, is empty, cannot be read, or is not a regular file. The problem is in the status of the
unit\(aqs links, in the journal and on D\-Bus. The unit goes when its main file is removed, and when a link to
.I /dev/null
masks it
.RB ( "ibnetctl mask" ).
So an empty file masks only what was not in force: a new file in a directory of higher priority, or one that was empty at boot.
.PP
The same holds for a file with NUL bytes that its last good version did not have, and for one that may be half written: it ends inside a
line, and the last good version did not. Such a file is used when it has not changed for five seconds, or at
.BR "ibnetctl reload" .
A file that ends with a newline is complete, so trailing lines can be removed. To be safe, write the file under another name and
rename it, as
.B ibnetctl edit
does.
.PP
A drop\-in that cannot be read when nothing of the unit is in force makes the unit match nothing until it can.
.PP
Without
.BR [Network] ,
.BR [Address] ,
.BR [Route] ,
.BR [RoutingPolicyRule] ,
.B [Neighbor]
and
.B [NextHop]
only the InfiniBand or RoCE part of the link is configured, and the IP part is left to the program that manages it.
.PP
.B ibnetctl verify
prints every problem of the files,
.B ibnetctl cat
a file with its drop\-ins,
.B ibnetctl plan
what they would change.
.PP
A file that is saved is in force at once, unless
.BR ibnetworkd.conf (5)
says otherwise.
.B ibnetctl edit
and
.B ibnetctl try
check a file and show what it would change before it counts.
`

const manTail = `.SH DERIVED ADDRESSES
One unit can be right on every node of a cluster: with fields in braces in
.BR Address= ,
each host puts a number of its own in place of an octet (IPv4) or of a group (IPv6, in decimal digits as people read them), or adds it to an
address.
.PP
.nf
.RS
Address=10.3.{eno1.3}.{eno1.4}/16   eno1 has 192.168.5.17: 10.3.5.17/16
Address=10.3.0.0+{eno1}/16          eno1 has 192.168.5.17/16: 10.3.5.17/16
Address=10.3.0.0+{host}/16          node300: 10.3.1.44/16
Address=10.{link+3}.0.{host}/16     ib0 and ib1 of node17: 10.3.0.17/16, 10.4.0.17/16
Address=fd00:3::{host}/64           node17: fd00:3::17/64
.RE
.fi
.TP
.BR {host} ", " {host:N}
The last, or the N\-th, number in the host name up to its first dot.
.TP
.BR {link} ", " {link:N}
The same of the name of the matched link.
.TP
.BR {LINK.1} " to " {LINK.4}
An octet of the IPv4 address of another link. LINK is a name or a pattern (en*).
.TP
.BR ADDRESS+{LINK}
The host part of that address, which is what is behind its prefix length.
.PP
A number may be added or subtracted
.RB ( {host+100} ).
The other link must have one address for itself: link\-local, deprecated and secondary addresses do not count, nor do those of length 32
where there is another. A link whose own addresses are derived from other links is not a source.
.PP
While an address cannot be derived the link is configuring, its status has the reason, and an address that was set before stays.
When what it is derived from comes or changes, the address follows. A value that does not fit (an octet of 256, an address outside of the
network) gives none.
.PP
.B AddressTable=
names a text file with a line for each node: a name and its addresses with prefix lengths. The name is that of a host
(one of the two names may lack the domain), HOST/LINK for one link of it, or the GUID of the port. HOST/LINK goes before the GUID,
and this before HOST.
.PP
.nf
.RS
# /etc/ibnetworkd/addresses
node17              10.3.0.17/16 fd00:3::17/64
node17/ib1          10.4.0.17/16
0x0002c903000a1b2c  10.3.0.18/16
.RE
.fi
.PP
What is wrong in it is reported with file, line and column; a second line for a name and a second holder of an address are not used.
An edit is applied as that of a unit is. A table that cannot be read keeps its last good version, and while it has a mistake no
address is taken away for the lack of a line. It may have 4 MiB.
.PP
.B ibnetctl plan \-\-hosts
shows what each node of a list would get, and the addresses that two of them would share; two links of one host that derive one address
are a note of its status and of
.BR "ibnetctl verify" .
On the link, IPv6 addresses are probed by the
kernel, IPv4 addresses where
.B DuplicateAddressDetection=
says so.
.SH DIFFERENCES FROM SYSTEMD\-NETWORKD
Syntax, values and patterns are read as by systemd 252, with which a test compares them, except for this:
.TP
.B A problem in [Match]
systemd ignores the assignment, so that the file matches more. Here the unit matches nothing.
.TP
.B A broken file, in force before
systemd drops it at the next reload. Here the last good version stays, see above.
.TP
.B A refused drop\-in
systemd drops the unit. Here only the drop\-in, unless it was in force or has a [Match] section.
.TP
.B Name=!ib0 and alternative names
The negative pattern counts for every name of the link; in systemd one name that passes is enough.
.TP
.B Name=ib0 # text, Name=!a !b
A \(dq#\(dq in a list of patterns is a mistake, not a pattern. Each \(dq!\(dq negates its own pattern; in systemd a second one is
a part of the pattern.
.TP
.B Backslashes in lists of patterns
They take the special meaning of the next character away, as in
.BR glob (7);
in systemd they split quoted items or are resolved before.
.TP
.B Conditions that can never hold
Architecture=x86_64 (for x86\-64) or KernelVersion= with a comparison that is cut off are reported. In systemd they do not hold.
KernelVersion= has the operators of systemd 254 and later.
.TP
.B MTUBytes=
68 to 2147483647, or max. systemd takes 0 to 4294967295.
.TP
.B Time spans
More than 292 years are infinity.
.TP
.B A second route with the same destination, Metric= and Table=
It is not used, and reported. The kernel keeps both for IPv4, but uses the second only as a default route whose first gateway
does not answer,
and when one of the two is to change it replaces the first (NLM_F_REPLACE); two for IPv6 become one multipath route. Neither can
be compared with
the unit and corrected. Write another Metric= for a backup gateway, MultiPathRoute= to use both.
.TP
.B Address=, Gateway=
Address pools (0.0.0.0/24) and learned gateways (_dhcp4, _ipv6ra) are refused.
.SH EXAMPLES
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
.BR ibnetworkd.conf (5),
.BR ibnetctl (1),
.BR ibnetsm (8),
.BR org.ibnetwork1 (5),
.BR systemd.network (5),
.BR systemd.syntax (7)
`
