package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// variable is one KEY=VALUE line of a file that a shell reads.
type variable struct {
	*item
	key, value string
}

// variables are those of a file, in the order of the text. Of a key that is
// given twice the last line counts; the others are reported.
type variables struct {
	list []*variable
	by   map[string]*variable
}

// get is the value of a key, "" if there is none.
func (v variables) get(key string) string {
	if x := v.by[key]; x != nil {
		return x.value
	}
	return ""
}

// items are those of keys that are given.
func (v variables) items(keys ...string) []*item {
	var out []*item
	for _, k := range keys {
		if x := v.by[k]; x != nil {
			out = append(out, x.item)
		}
	}
	return out
}

// superseded is the account of a variable that another one takes the place of:
// nothing is lost if both have the same value.
func (x *variable) superseded(key, value string) {
	if x.value == value {
		x.unneeded(key + " says it")
	} else {
		x.left("not used: " + key + "=" + value + " overrides it")
	}
}

const (
	whyNotKeyValue = "not a KEY=VALUE line"
	whyOpenHeader  = "a section header that does not end"
	whyExpansion   = "a shell expansion; write the value itself"
)

// assignments reads lines of the form KEY=VALUE as a shell does: the value is one
// word, and comments follow it.
func assignments(f *file, signs string) variables {
	v := variables{by: map[string]*variable{}}
	for _, it := range f.logical(signs) {
		before, rest, ok := strings.Cut(strings.TrimPrefix(it.text, "export "), "=")
		k := strings.TrimSpace(before)
		if !ok || k == "" || strings.ContainsAny(k, " \t$") {
			it.left(whyNotKeyValue)
			continue
		}
		// A shell would run a command, and NetworkManager skips the line.
		if text := strings.TrimSpace(rest); signs == hash && (strings.HasSuffix(before, " ") || strings.HasSuffix(before, "\t") ||
			text != "" && text[0] != '#' && (rest[0] == ' ' || rest[0] == '\t')) {
			it.left("not an assignment: there is a blank beside the \"=\"")
			continue
		} else if text != "" && text[0] == '#' && rest[0] != '#' {
			rest = "" // a comment
		}
		value, after, closed := word(strings.TrimLeft(rest, " \t"))
		if !closed {
			it.left("a quote does not end in this line")
			continue
		}
		x := &variable{it, k, value}
		if strings.ContainsAny(rest, "$`") && !strings.HasPrefix(strings.TrimLeft(rest, " \t"), "'") {
			x.left(whyExpansion)
			continue
		}
		if after = strings.TrimSpace(after); after != "" && after[0] != '#' && after != ";" {
			x.item = it.part(strings.TrimSpace(strings.TrimSuffix(it.text, after)))
			it.part(after).left("text after the value")
		}
		if old := v.by[k]; old != nil {
			old.left(fmt.Sprintf("not used: line %d overrides %s", it.line, k))
			v.list = slices.DeleteFunc(v.list, func(y *variable) bool { return y == old })
		}
		v.by[k] = x
		v.list = append(v.list, x)
	}
	return v
}

// word is the first word of s without its quotes, and the rest.
func word(s string) (w, rest string, closed bool) {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != '\'' && c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case quote == 0 && (c == ' ' || c == '\t' || c == ';'):
			return b.String(), s[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", quote == 0
}

// words are all words of s without their quotes.
func words(s string) []string {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, " \t;") {
		w, rest, _ := word(s)
		out = append(out, w)
		if len(rest) == len(s) {
			break
		}
		s = rest
	}
	return out
}

// command is one simple command of a shell line.
type command struct {
	text string
	op   string // between it and the one before: ; && || & |
}

// simple splits a shell line into its commands. It returns false for what is
// more than a list of simple commands.
func simple(s string) ([]command, bool) {
	var out []command
	op, start := "", 0
	quote := byte(0)
	end := func(i int, next string, width int) {
		if t := strings.TrimSpace(s[start:i]); t != "" {
			out = append(out, command{t, op})
		}
		op, start = next, i+width
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else if quote == '"' && (c == '`' || c == '$') {
				return nil, false
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '`', c == '(', c == ')', c == '$', c == '<', c == '\\', c == '*', c == '?', c == '{':
			return nil, false
		case c == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t' || s[i-1] == ';'):
			end(i, "", 0)
			return out, true
		case strings.HasPrefix(s[i:], "&&"), strings.HasPrefix(s[i:], "||"):
			end(i, s[i:i+2], 2)
			i++
		case c == '&' && (i > 0 && s[i-1] == '>' || i+1 < len(s) && s[i+1] == '>'):
		case c == ';', c == '&', c == '|':
			end(i, string(c), 1)
		}
	}
	if quote != 0 {
		return nil, false
	}
	end(len(s), "", 0)
	for _, c := range out {
		switch first, _, _ := strings.Cut(c.text, " "); first {
		case "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "!", "{", "}", "[[":
			return nil, false
		}
	}
	return out, true
}

// shell is what the commands of a script or an interfaces file change.
type shell struct {
	im *importer
	// link gives the draft that settings of a link go to.
	link  func(name string) *draft
	iface string          // the interface whose line it is, "" for none
	known map[string]bool // links that are IPoIB whatever their names
	// hops are the links of nexthop objects, by their ID: of a group those of its members.
	hops map[string][]string
}

// isLink reports whether a name is that of an IPoIB link.
func (sh *shell) isLink(name string) bool {
	return validName(name) && (isIB(name) || name == sh.iface || sh.known[name] || sh.im.host.PortGUIDs[name] != 0)
}

const whyOther = "a command for a link that is not an InfiniBand link of these files"

const whyShell = "a shell line that is more than a list of simple commands; check whether a setting of a unit replaces it"

// hereDoc is a here-document that a line opens.
type hereDoc struct {
	word string
	tabs bool // tabs before the word that ends it are ignored
}

// ends reports whether a line, as it is in the file, is the document's last.
func (h hereDoc) ends(raw string) bool {
	if h.tabs {
		raw = strings.TrimLeft(raw, "\t")
	}
	return strings.TrimSuffix(raw, "\r") == h.word
}

var hereWord = regexp.MustCompile(`^<<(-?)[ \t]*([^\s|&;<>()]+)`)

// hereDocs are the here-documents that a line opens, in their order.
func hereDocs(line string) []hereDoc {
	var out []hereDoc
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			return out
		case strings.HasPrefix(line[i:], "<<<"):
			i += 2
		default:
			if m := hereWord.FindStringSubmatch(line[i:]); m != nil {
				w, _, _ := word(m[2])
				out = append(out, hereDoc{w, m[1] != ""})
				i += len(m[0]) - 1
			}
		}
	}
	return out
}

// ending is whether a shell goes on after a line.
type ending int

const (
	goesOn ending = iota
	mayEnd        // where a command of the line succeeds
	ends
)

// run carries the commands of one line over, each with its own account. It
// reports whether the line ends the shell.
func (sh *shell) run(it *item, line string) ending {
	if sh.iface != "" {
		line = strings.NewReplacer("${IFACE}", sh.iface, "\"$IFACE\"", sh.iface, "$IFACE", sh.iface, "%i", sh.iface).Replace(line)
	}
	cs, ok := simple(line)
	if !ok {
		it.left(whyShell)
		after, isExec := strings.CutPrefix(line, "exec ")
		if strings.HasPrefix(line, "exit ") || isExec && !strings.ContainsAny(after[:1], "<>0123456789") {
			return ends
		}
		return goesOn
	}
	// echo X | tee FILE is echo X > FILE.
	for i := 0; i+1 < len(cs); i++ {
		w, target, ok := redirect(words(cs[i+1].text))
		if len(w) > 0 && w[0] == "sudo" {
			w = w[1:]
		}
		if ok && target == "" && cs[i+1].op == "|" && len(w) == 2 && w[0] == "tee" {
			cs[i].text += " > " + w[len(w)-1]
			cs = slices.Delete(cs, i+1, i+2)
		}
	}
	parts := []*item{it}
	if len(cs) > 1 {
		parts = parts[:0]
		for _, c := range cs {
			parts = append(parts, it.part(c.text))
		}
	}
	if len(cs) == 0 {
		it.unneeded("an empty command")
	}
	end, condition := goesOn, false
	for i, c := range cs {
		p := parts[i]
		guarded := condition && c.op == "||" // [ -e CHILD ] || make the child
		condition = false
		switch {
		case end == ends:
			p.left("never run: the shell exits before it")
			continue
		case end == mayEnd:
			p.left("it runs only if the shell does not exit before it")
			continue
		}
		w, target, ok := redirect(words(c.text))
		if exit := ok && len(w) > 0 && w[0] == "exit"; exit || len(w) > 1 && w[0] == "exec" {
			switch c.op {
			case "", ";":
				end = ends
			case "&&":
				end = mayEnd
			}
			if !exit {
				w = w[1:] // the command replaces the shell
			}
		} else if len(w) == 1 && w[0] == "exec" {
			p.unneeded("it redirects the output of what follows")
			continue
		}
		switch {
		case c.op == "|" || i+1 < len(cs) && cs[i+1].op == "|":
			p.left("a pipeline; check whether a setting of a unit replaces it")
		case !ok:
			p.left(whyCommand)
		case harmless(w) && end == mayEnd:
			p.left("the shell exits only if the command before it succeeds")
		case harmless(w):
			p.unneeded("it changes nothing")
		case c.op == "||" && !guarded:
			p.left("it runs only when the command before it fails")
		case len(w) > 0 && (w[0] == "[" || w[0] == "test"):
			condition = true
			p.left("a condition; what follows is set unconditionally")
		default:
			if why := sh.command(p, w, target); why != "" {
				p.left(why)
			}
		}
	}
	return end
}

// harmless reports a command that changes nothing.
func harmless(w []string) bool {
	return len(w) == 1 && (w[0] == "true" || w[0] == ":" || w[0] == "exit" || w[0] == "sync") ||
		len(w) == 2 && (w[0] == "sleep" || w[0] == "exit") && number(w[1])
}

// redirect takes the redirection from the words of a command.
func redirect(w []string) (rest []string, target string, ok bool) {
	for i := 0; i < len(w); i++ {
		x := w[i]
		if !strings.Contains(x, ">") {
			rest = append(rest, x)
			continue
		}
		if x == "2>/dev/null" || x == ">/dev/null" || x == "2>&1" || x == "&>/dev/null" || x == ">/dev/null;" {
			continue
		}
		before, after, _ := strings.Cut(x, ">")
		if before != "" && before != "1" {
			// echo connected>FILE
			if before == "&" || number(before) {
				if after == "" && i+1 < len(w) {
					i++
				}
				continue
			}
			rest = append(rest, before)
		}
		after = strings.TrimPrefix(after, ">")
		if after == "" && i+1 < len(w) {
			i++
			after = w[i]
		}
		if after == "/dev/null" {
			continue
		}
		if target != "" || after == "" || strings.Contains(after, ">") {
			return nil, "", false
		}
		target = after
	}
	return rest, target, true
}

var (
	netAttr  = regexp.MustCompile(`^/sys/class/net/([^/]+)/(mode|mtu|umcast|create_child|delete_child)$`)
	portAttr = regexp.MustCompile(`^/sys/(?:bus/pci/devices/([^/]+)|class/infiniband/([^/]+)/device)/mlx4_port([12])$`)
	confAttr = regexp.MustCompile(`^/proc/sys/net/(ipv[46])/conf/([^/]+)/([a-z0-9_]+)$`)
)

// sysctls are settings of a link that a unit has a key for, and its values.
var sysctls = map[string]struct {
	key    string
	values map[string]string
}{
	"ipv4/rp_filter":      {"IPv4ReversePathFilter", map[string]string{"0": "no", "1": "strict", "2": "loose"}},
	"ipv4/forwarding":     {"IPv4Forwarding", map[string]string{"0": "no", "1": "yes"}},
	"ipv6/forwarding":     {"IPv6Forwarding", map[string]string{"0": "no", "1": "yes"}},
	"ipv4/accept_local":   {"IPv4AcceptLocal", map[string]string{"0": "no", "1": "yes"}},
	"ipv4/route_localnet": {"IPv4RouteLocalnet", map[string]string{"0": "no", "1": "yes"}},
	"ipv4/proxy_arp":      {"IPv4ProxyARP", map[string]string{"0": "no", "1": "yes"}},
	"ipv6/proxy_ndp":      {"IPv6ProxyNDP", map[string]string{"0": "no", "1": "yes"}},
	"ipv6/disable_ipv6":   {"LinkLocalAddressing", map[string]string{"1": "no"}},
	"ipv6/accept_ra":      {"IPv6AcceptRA", map[string]string{"0": "no", "1": "yes", "2": "yes"}},
}

// sysctl carries a sysctl of a link over.
func (sh *shell) sysctl(it *item, name, value string) string {
	f := strings.Split(strings.ReplaceAll(name, ".", "/"), "/")
	if len(f) != 5 || f[0] != "net" || f[2] != "conf" {
		return "a sysctl of the host; write it into /etc/sysctl.d"
	}
	s, ok := sysctls[f[1]+"/"+f[4]]
	if !ok || f[3] == "all" || f[3] == "default" || !validName(f[3]) {
		return whySysctl
	}
	v, ok := s.values[value]
	if !ok {
		return whyValue
	}
	sh.link(f[3]).set("Network", s.key, v, it)
	return ""
}

// write carries over what is written into a file of sysfs or procfs, with or
// without a newline at the end.
func (sh *shell) write(it *item, value string, newline bool, target string) string {
	if m := netAttr.FindStringSubmatch(target); m != nil && validName(m[1]) {
		switch m[2] {
		case "mode":
			if value != "connected" && value != "datagram" {
				return whyValue
			}
			if !newline {
				// ipoib_set_mode compares with "connected\n".
				return "the kernel rejects a mode without a newline, so this line has no effect; write [IPoIB] Mode=" + value + " if the mode is wanted"
			}
			sh.link(m[1]).set("IPoIB", "Mode", value, it)
		case "mtu":
			sh.link(m[1]).mtu(value, it)
		case "umcast":
			b, ok := boolean(value)
			if !ok {
				return whyValue
			}
			sh.link(m[1]).set("IPoIB", "IgnoreUserspaceMulticastGroups", b, it)
		case "create_child":
			k, ok := pkeyC(value)
			if !ok {
				return "not a P_Key (0x0001 to 0xffff, not 0x8000; decimal without 0x)"
			}
			sh.link(m[1])
			sh.im.children = append(sh.im.children, &child{m[1], childName(m[1], k), k, []*item{it}})
		default:
			return "ibnetworkd removes the P_Key children that it created"
		}
		return ""
	}
	if m := portAttr.FindStringSubmatch(target); m != nil {
		if value != "ib" && value != "eth" && value != "auto" {
			return whyValue
		}
		if m[1] != "" {
			return sh.im.pciPort(m[1], m[3], value, it)
		}
		return sh.im.port("port-"+m[2]+"-"+m[3], value, it, "IBDevice="+m[2], "Port="+m[3])
	}
	if m := confAttr.FindStringSubmatch(target); m != nil {
		return sh.sysctl(it, "net/"+m[1]+"/conf/"+m[2]+"/"+m[3], value)
	}
	return whyCommand
}

// command carries one command over, or says why not.
func (sh *shell) command(it *item, w []string, target string) string {
	if len(w) == 0 {
		return whyCommand
	}
	if w[0] == "sudo" && len(w) > 1 {
		w = w[1:]
	}
	name := w[0][strings.LastIndexByte(w[0], '/')+1:]
	if (name == "echo" || name == "printf") && target != "" {
		args := slices.DeleteFunc(slices.Clone(w[1:]), func(s string) bool { return name == "echo" && (s == "-n") })
		if len(args) != 1 {
			return whyCommand
		}
		value, newline := args[0], len(args) == len(w)-1
		if name == "printf" {
			value, newline = strings.CutSuffix(value, `\n`)
		}
		return sh.write(it, value, newline, target)
	}
	if target != "" {
		return whyCommand
	}
	switch name {
	case "modprobe":
		return modprobed(it, w[1:])
	case "sysctl":
		args := slices.DeleteFunc(slices.Clone(w[1:]), func(s string) bool { return s == "-w" || s == "-q" || s == "-e" })
		if len(args) != 1 {
			return whyCommand
		}
		k, v, ok := strings.Cut(args[0], "=")
		if !ok {
			return whyCommand
		}
		return sh.sysctl(it, k, v)
	case "ip":
		return sh.ip(it, w[1:])
	case "ifconfig":
		return sh.ifconfig(it, w[1:])
	case "route":
		return sh.route(it, w[1:])
	case "ethtool":
		if len(w) < 4 {
			return whyCommand
		}
		if _, ok := ethtoolGroups[w[1]]; !ok {
			return whyEthtool
		}
		if !sh.isLink(w[2]) {
			return whyOther
		}
		return sh.link(w[2]).ethtoolCommand(w[1], w[3:], it)
	}
	return whyCommand
}

// modprobed is the account of a call of modprobe.
func modprobed(it *item, args []string) string {
	args = slices.DeleteFunc(slices.Clone(args), func(s string) bool { return strings.HasPrefix(s, "-") && s != "-r" && s != "-a" })
	if len(args) == 0 || args[0] == "-r" {
		return whyCommand
	}
	if args[0] == "-a" {
		for _, m := range args[1:] {
			if !udevLoads(m) {
				return fmt.Sprintf("nothing loads the module %s; write it into /etc/modules-load.d, or [Modules] Load=%s into a unit", m, m)
			}
		}
		it.unneeded("udev loads the modules")
		return ""
	}
	if !udevLoads(args[0]) {
		return fmt.Sprintf("nothing loads the module %s; write it into /etc/modules-load.d, or [Modules] Load=%s into a unit", args[0], args[0])
	}
	if len(args) > 1 {
		return fmt.Sprintf("an option of a module; write \"options %s\" into a file of /etc/modprobe.d", strings.Join(args, " "))
	}
	it.unneeded("udev loads the module")
	return ""
}
