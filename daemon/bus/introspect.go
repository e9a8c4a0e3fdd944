package bus

import (
	"encoding/xml"
	"fmt"
	"strings"

	"ibnetworkd/daemon/bus/api"
)

// arg is an argument of a method or signal.
type arg struct{ name, sig, dir string }

// method describes one method or signal.
type method struct {
	name string
	args []arg
	doc  string
}

var managerMethods = []method{
	{"Reload", nil, "Read the unit files again and apply what changed. Needs org.ibnetwork1.reload."},
	{"Reconfigure", []arg{{"link", "s", "in"}}, "Compare a link with its unit again and apply every difference at once. Needs " +
		"org.ibnetwork1.reconfigure."},
	{"Renew", []arg{{"link", "s", "in"}}, "Ask the DHCP servers of a link now, to renew its lease or to get one. Needs " +
		"org.ibnetwork1.reconfigure."},
	{"Up", []arg{{"link", "s", "in"}}, "Bring a link up. Needs org.ibnetwork1.set-link."},
	{"Down", []arg{{"link", "s", "in"}}, "Bring a link down. Needs org.ibnetwork1.set-link."},
	{"Plan", []arg{{"commands", "as", "out"}, {"blocked", "a(sssss)", "out"}},
		"What would be done now, as commands, and what cannot be done: what it is about, command, code, sentence, next step. Changes nothing."},
	{"Describe", []arg{{"json", "s", "out"}}, "Everything that is known, as JSON; the schema is in org.ibnetwork1(5)."},
	{"ListLinks", []arg{{"links", "a(isso)", "out"}}, "All links: index, name, state, object."},
	{"ListPorts", []arg{{"ports", "a(suso)", "out"}}, "All RDMA ports: device, port number, state, object."},
	{"ListSubnetManagers", []arg{{"managers", "a(suso)", "out"}}, "The subnet managers: device, port number, phase, object."},
	{"GetLink", []arg{{"name", "s", "in"}, {"object", "o", "out"}}, "The object of a link."},
	{"GetPort", []arg{{"port", "s", "in"}, {"object", "o", "out"}}, "The object of a port such as mlx5_0/1."},
	{"StartSubnetManager", []arg{{"port", "s", "in"}}, "Run the subnet manager on a port until it is stopped by hand. Needs " +
		"org.ibnetwork1.manage-subnet-manager."},
	{"StopSubnetManager", []arg{{"port", "s", "in"}}, "Stop the subnet manager on a port and keep it stopped. Needs " +
		"org.ibnetwork1.manage-subnet-manager."},
	{"SetLogLevel", []arg{{"level", "s", "in"}}, "Set the log level: debug, info, warn or error. Needs org.ibnetwork1.set-log-level."},
}

var linkMethods = []method{
	{"Reconfigure", nil, "As Manager.Reconfigure."},
	{"Renew", nil, "As Manager.Renew."},
	{"Up", nil, "As Manager.Up."},
	{"Down", nil, "As Manager.Down."},
}

var smMethods = []method{
	{"Start", nil, "As Manager.StartSubnetManager."},
	{"Stop", nil, "As Manager.StopSubnetManager."},
}

const standard = ` <interface name="org.freedesktop.DBus.Introspectable">
  <method name="Introspect"><arg name="xml" type="s" direction="out"/></method>
 </interface>
 <interface name="org.freedesktop.DBus.Peer">
  <method name="Ping"/>
  <method name="GetMachineId"><arg name="machine_uuid" type="s" direction="out"/></method>
 </interface>
 <interface name="org.freedesktop.DBus.Properties">
  <method name="Get"><arg name="interface" type="s" direction="in"/>
    <arg name="name" type="s" direction="in"/><arg name="value" type="v" direction="out"/></method>
  <method name="GetAll"><arg name="interface" type="s" direction="in"/><arg name="properties" type="a{sv}" direction="out"/></method>
  <method name="Set"><arg name="interface" type="s" direction="in"/>
    <arg name="name" type="s" direction="in"/><arg name="value" type="v" direction="in"/></method>
  <signal name="PropertiesChanged"><arg name="interface" type="s"/>
    <arg name="changed" type="a{sv}"/><arg name="invalidated" type="as"/></signal>
 </interface>
`

const objectManager = ` <interface name="org.freedesktop.DBus.ObjectManager">
  <method name="GetManagedObjects"><arg name="objects" type="a{oa{sa{sv}}}" direction="out"/></method>
  <signal name="InterfacesAdded"><arg name="object" type="o"/><arg name="interfaces" type="a{sa{sv}}"/></signal>
  <signal name="InterfacesRemoved"><arg name="object" type="o"/><arg name="interfaces" type="as"/></signal>
 </interface>
`

func doc(text, indent string) string {
	var esc strings.Builder
	_ = xml.EscapeText(&esc, []byte(text))
	return fmt.Sprintf("%s<annotation name=\"org.gtk.GDBus.DocString\" value=\"%s\"/>\n", indent, esc.String())
}

func describeMethods(b *strings.Builder, ms []method) {
	for _, m := range ms {
		fmt.Fprintf(b, "  <method name=%q>\n%s", m.name, doc(m.doc, "   "))
		for _, a := range m.args {
			fmt.Fprintf(b, "   <arg name=%q type=%q direction=%q/>\n", a.name, a.sig, a.dir)
		}
		b.WriteString("  </method>\n")
	}
}

// interfaceXML is the introspection data of each interface.
var interfaceXML = func() map[string]string {
	out := map[string]string{}
	section := func(name, about string, f func(*strings.Builder)) {
		var b strings.Builder
		fmt.Fprintf(&b, " <interface name=%q>\n%s", name, doc(about, "  "))
		f(&b)
		b.WriteString(" </interface>\n")
		out[name] = b.String()
	}
	section(api.Manager, "The daemon.", func(b *strings.Builder) {
		describeMethods(b, managerMethods)
		describeProps(b, api.Manager, managerProps)
	})
	section(api.Link, "A network interface: what its unit configures, what it is, and why they differ.",
		func(b *strings.Builder) { describeMethods(b, linkMethods); describeProps(b, api.Link, linkProps) })
	section(api.Port, "A port of an RDMA device.", func(b *strings.Builder) { describeProps(b, api.Port, portProps) })
	section(api.SubnetManager, "Whether this host runs the subnet manager of the subnet at a port, and why.",
		func(b *strings.Builder) { describeMethods(b, smMethods); describeProps(b, api.SubnetManager, smProps) })
	section(api.LogControl, "The log of the daemon.", func(b *strings.Builder) { describeProps(b, api.LogControl, logProps) })
	return out
}()

// node assembles the introspection data of an object.
func node(ifaces []string, children []string) string {
	var b strings.Builder
	b.WriteString("<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\" " +
		"\"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n")
	b.WriteString(standard)
	for _, i := range ifaces {
		if i == "org.freedesktop.DBus.ObjectManager" {
			b.WriteString(objectManager)
		} else {
			b.WriteString(interfaceXML[i])
		}
	}
	for _, c := range children {
		fmt.Fprintf(&b, " <node name=%q/>\n", c)
	}
	b.WriteString("</node>\n")
	return b.String()
}
