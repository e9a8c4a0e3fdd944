package bus

import (
	"encoding"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

var update = flag.Bool("update", false, "write the generated man page")

func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func manProps[T any](b *strings.Builder, table []property[T]) {
	for _, p := range table {
		fmt.Fprintf(b, ".TP\n.BR %s \" (%s)\"\n%s\n", p.name, roff(p.sig), roff(p.doc))
	}
}

func manMethods(b *strings.Builder, ms []method) {
	for _, m := range ms {
		var in, out []string
		for _, a := range m.args {
			t := a.sig + " " + a.name
			if a.dir == "in" {
				in = append(in, t)
			} else {
				out = append(out, t)
			}
		}
		ret := ""
		if len(out) > 0 {
			ret = " \\(-> " + roff(strings.Join(out, ", "))
		}
		fmt.Fprintf(b, ".TP\n.BR %s \"(%s)%s\"\n%s\n", m.name, roff(strings.Join(in, ", ")), ret, roff(m.doc))
	}
}

// page is org.ibnetwork1(5), from the tables that the server itself uses.
func page() string {
	var b strings.Builder
	b.WriteString(`.\" Generated from the tables of daemon/bus: go test ./daemon/bus -update
.TH ORG.IBNETWORK1 5 "" ibnetworkd "File formats"
.SH NAME
org.ibnetwork1 \- the D\-Bus interface of ibnetworkd
.SH DESCRIPTION
.BR ibnetworkd (8)
owns the name
.I org.ibnetwork1
on the system bus.
Its objects are
.TP
.I /org/ibnetwork1
the Manager; it is an org.freedesktop.DBus.ObjectManager too.
.TP
.I /org/ibnetwork1/link/INDEX
a Link, by interface index; a link that is wanted and does not exist yet has
.I wanted_NAME
in place of the index.
.TP
.I /org/ibnetwork1/port/DEVICE_PORT
a Port of an RDMA device.
.TP
.I /org/ibnetwork1/subnet_manager/GUID
the SubnetManager of a port, by port GUID.
.TP
.I /org/freedesktop/LogControl1
the log, for
.BR "systemctl service\-log\-level ibnetworkd" .
.PP
Index, device and port, and GUID are written by the rule of sd_bus_path_encode(3).
All properties but LogLevel of the log are read\-only.
They emit PropertiesChanged with exactly what has changed; any number of changes that come faster than the
bus takes them are one signal.
Objects come and go with InterfacesAdded and InterfacesRemoved.
.PP
Reading is open to everyone.
What changes something is allowed to root, and to whom polkit grants the action that the method names; without polkit others get
org.freedesktop.DBus.Error.AccessDenied and a sentence.
` + fmt.Sprintf("At most %d requests are under way at one time, %d of one user other than root; further ones get LimitsExceeded.", maxVerbs, maxEach) + `
` + fmt.Sprintf("So do calls of a user other than root above %d a second, and arguments above 4 KiB; a call does not start a stopped daemon.", userRate) + `
.PP
To explore the interface:
.PP
.RS
.nf
busctl tree org.ibnetwork1
busctl introspect org.ibnetwork1 /org/ibnetwork1
busctl monitor org.ibnetwork1
.fi
.RE
`)
	section := func(iface, about string, f func()) {
		fmt.Fprintf(&b, ".SH INTERFACE %s\n%s\n", roff(iface), about)
		f()
	}
	section(api.Manager, "Methods:", func() {
		manMethods(&b, managerMethods)
		b.WriteString(".PP\nProperties:\n")
		manProps(&b, managerProps)
	})
	section(api.Link, "A network interface: what its unit asks for, what it is, and why they differ.\n.PP\nMethods:", func() {
		manMethods(&b, linkMethods)
		b.WriteString(".PP\nProperties:\n")
		manProps(&b, linkProps)
	})
	section(api.Port, "Properties:", func() { manProps(&b, portProps) })
	section(api.SubnetManager, "Whether this host runs the subnet manager of the subnet at a port, and why.\n.PP\nMethods:", func() {
		manMethods(&b, smMethods)
		b.WriteString(".PP\nProperties:\n")
		manProps(&b, smProps)
	})
	section(api.LogControl, "As org.freedesktop.LogControl1(5) of systemd describes it.\n.PP\nProperties:", func() { manProps(&b, logProps) })
	b.WriteString(`.SH DESCRIBE
Describe returns a JSON object; keys may be added, and
.I schema
changes when one goes or changes its meaning:
.TP
.B schema
` + fmt.Sprint(api.DescriptionSchema) + `
.TP
.B version
of the daemon.
.TP
.B source
.BR ibnetworkd ,
or
.B observed
when
.B ibnetctl
read the state of the host itself because the daemon does not run.
.TP
.B online_state
online, partial or offline.
.TP
.B links
` + keysOf(reflect.TypeFor[link.Status]()) + `
.TP
.B ports
` + keysOf(reflect.TypeFor[link.PortStatus]()) + `
.TP
.B subnet_managers
` + keysOf(reflect.TypeFor[smctl.Status]()) + `
.TP
.B problems
of unit files, each as file:line:column: sentence.
.SH ERRORS
.TP
.B org.ibnetwork1.NoSuchLink\fR,\fP org.ibnetwork1.NoSuchPort
There is none of that name.
.TP
.B org.ibnetwork1.Failed
The request failed; the message says why.
.SH SEE ALSO
.BR ibnetworkd (8),
.BR ibnetctl (1),
.BR busctl (1)
`)
	return b.String()
}

// keysOf lists the keys of a type's JSON form, with those of the types in it, as
// lines of a manual page.
func keysOf(t reflect.Type) string {
	var keys func(reflect.Type) []string
	keys = func(t reflect.Type) (out []string) {
		for i := range t.NumField() {
			f := t.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			in := f.Type
			for in.Kind() == reflect.Slice || in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			if text := reflect.TypeFor[encoding.TextMarshaler](); in.Kind() == reflect.Struct && !in.Implements(text) {
				key += " (" + strings.Join(keys(in), ", ") + ")"
			}
			out = append(out, key)
		}
		return out
	}
	var lines strings.Builder
	width := 0
	for w := range strings.FieldsSeq("each with " + strings.Join(keys(t), ", ") + ".") {
		if width += len(w) + 1; width > 120 {
			lines.WriteByte('\n')
			width = len(w)
		} else if lines.Len() > 0 {
			lines.WriteByte(' ')
		}
		lines.WriteString(w)
	}
	return lines.String()
}

const pagePath = "../../docs/man/org.ibnetwork1.5"

func TestManPage(t *testing.T) {
	want := page()
	if *update {
		testkit.WriteFile(t, pagePath, want)
	}
	got := testkit.ReadFile(t, pagePath)
	if string(got) != want {
		t.Error("docs/man/org.ibnetwork1.5 is not what the tables say: go test ./daemon/bus -update")
	}
}
