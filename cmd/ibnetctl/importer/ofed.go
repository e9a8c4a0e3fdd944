package importer

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// pkeyText is a P_Key as units write it.
func pkeyText(k uint16) string { return ib.PKey(k).String() }

// ownModules are modules that udev loads for an adapter, ibnetworkd's rules
// among them.
var ownModules = []string{"ib_ipoib", "ib_umad", "ib_core", "ib_uverbs", "ib_cm", "iw_cm", "rdma_cm", "rdma_ucm", "ib_ucm",
	"mlx4_core", "mlx4_ib", "mlx4_en", "mlx5_core", "mlx5_ib", "ib_mthca", "ib_qib", "hfi1", "ib_sa", "ib_mad", "ib_addr"}

func udevLoads(module string) bool {
	return slices.Contains(ownModules, strings.ReplaceAll(module, "-", "_"))
}

var indexed = regexp.MustCompile(`^(mode|mtu)\[([^\]]+)\]$`)

// ipoibmodemtu reads the configuration of the oneshot unit of that name.
func (im *importer) ipoibmodemtu(files []*file) {
	for _, f := range files {
		for _, a := range assignments(f, hashOrSem).list {
			m := indexed.FindStringSubmatch(a.key)
			if m == nil || !validName(strings.Trim(m[2], `"'`)) {
				continue
			}
			link, value := strings.Trim(m[2], `"'`), strings.TrimSpace(a.value)
			if m[1] == "mode" {
				if mode, ok := modeOf(value); ok {
					im.extras = append(im.extras, extra{link, "IPoIB", "Mode", mode, a.item})
				} else {
					a.left(whyMode)
				}
			} else if mtu, ok := mtuOf(value); ok {
				im.extras = append(im.extras, extra{link, "Link", "MTUBytes", mtu, a.item})
			} else {
				a.left(whyMTU(value))
			}
		}
		im.note("disable the old unit: systemctl disable --now ipoibmodemtu")
	}
}

// openib reads /etc/infiniband/openib.conf of OFED and /etc/rdma/rdma.conf.
func (im *importer) openib(files []*file) {
	for _, f := range files {
		for _, a := range assignments(f, hash).list {
			switch key := a.key; {
			case key == "SET_IPOIB_CM":
				m := strings.ToLower(a.value)
				if b, ok := boolean(m); ok {
					m = connectedMode(b)
				}
				if m == "auto" || m == "connected" || m == "datagram" {
					im.extras = append(im.extras, extra{"", "IPoIB", "Mode", m, a.item})
				} else {
					a.left(whyValue)
				}
			case key == "IPOIB_MTU":
				if mtu, ok := mtuOf(a.value); ok {
					im.extras = append(im.extras, extra{"", "Link", "MTUBytes", mtu, a.item})
				} else {
					a.left(whyMTU(a.value))
				}
			case key == "ONBOOT", key == "IPOIB_LOAD", key == "UMAD_LOAD", key == "RDMA_UCM_LOAD", key == "UCM_LOAD", key == "RDMA_CM_LOAD",
				key == "MTHCA_LOAD", key == "QIB_LOAD",
				strings.HasPrefix(key, "MLX") && strings.HasSuffix(key, "_LOAD"):
				if yes(a.value) {
					a.unneeded("udev loads the module")
				} else {
					a.left("udev loads the module when an adapter is present; a file in /etc/modprobe.d with \"blacklist MODULE\" prevents it")
				}
			case strings.HasSuffix(key, "_LOAD"):
				if yes(a.value) {
					a.left("nothing loads these modules; write [Modules] Load= into a unit, or a file in /etc/modules-load.d")
				} else {
					a.unneeded("not loaded")
				}
			case key == "NODE_DESC":
				a.left("the node description; write [Port] NodeDescription=, in which %H is the host's name")
			case key == "FIXUP_MTRR_REGS", key == "NODE_DESC_TIME_BEFORE_UPDATE", key == "NODE_DESC_UPDATE_TIMEOUT",
				key == "PRE_START_HOOK" && a.value == "", key == "POST_START_HOOK" && a.value == "":
				a.unneeded("for the script that reads the file")
			}
		}
		if path.Base(f.path) == "rdma.conf" {
			im.note("disable the old service, if the host has it: systemctl disable rdma")
		} else {
			im.note("set SET_IPOIB_CM=no in %s, or disable openibd: it sets the mode of every IPoIB link at boot", f.path)
		}
	}
}

var bdf = regexp.MustCompile(`^(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)

// pciPort is the unit of the type of a port of a PCI device.
func (im *importer) pciPort(dev, port, typ string, it *item) string {
	if !bdf.MatchString(dev) {
		return "not a PCI address"
	}
	dev = strings.ToLower(dev)
	if strings.Count(dev, ":") == 1 {
		dev = "0000:" + dev
	}
	return im.port("port-"+strings.NewReplacer(":", "-", ".", "-").Replace(dev)+"-"+port, typ, it, "Path=pci-"+dev, "Port="+port)
}

// port is the unit of the type of a port. It matches the port's interface too,
// and only the first unit that matches applies: where the interface is to be
// Ethernet, the unit comes before those of InfiniBand links, else after them.
func (im *importer) port(name, typ string, it *item, match ...string) string {
	d := im.ports[name]
	if d == nil {
		d = &draft{name: name, port: true}
		for _, m := range match {
			k, v, _ := strings.Cut(m, "=")
			d.set("Match", k, v, it)
		}
		im.ports[name] = d
	}
	d.source(it.file)
	d.set("Port", "Type", typ, it)
	if d.prefix = "95"; typ == "eth" {
		d.prefix = "05"
	}
	return ""
}

// exceptPorts takes the ports that have a unit of their own out of units for all
// adapters of a driver that would apply first: mlx4.conf and scripts come after
// the options of the module.
func (im *importer) exceptPorts() {
	for _, all := range slices.Sorted(maps.Keys(im.ports)) {
		g := im.ports[all]
		driver, isAll := g.sec("Match").get("Driver")
		if typ, _ := g.sec("Port").get("Type"); !isAll || typ != "eth" {
			continue
		}
		port, onePort := g.sec("Match").get("Port")
		for _, name := range slices.Sorted(maps.Keys(im.ports)) {
			s := im.ports[name]
			n, _ := s.sec("Match").get("Port")
			own := s.sec("Match").dirs[0] // Path= or IBDevice=
			if typ, _ := s.sec("Port").get("Type"); typ == "eth" || own.key == "Driver" || onePort && n != port {
				continue
			}
			g.add("Match", own.key, "!"+own.value, own.from...)
			// The other port of the adapter is as the option of the module says.
			other := map[string]string{"1": "2", "2": "1"}[n]
			if rest := strings.TrimSuffix(name, n) + other; !onePort && im.ports[rest] == nil {
				for _, it := range g.sec("Port").dirs[0].from {
					im.port(rest, "eth", it, own.key+"="+own.value, "Port="+other, "Driver="+driver)
				}
			}
		}
	}
}

// mlx4 reads /etc/rdma/mlx4.conf: lines of a PCI address and a type for each
// port.
func (im *importer) mlx4(files []*file) {
	for _, f := range files {
		for _, it := range f.content(hash) {
			w := strings.Fields(it.text)
			if i := slices.IndexFunc(w, func(s string) bool { return s[0] == '#' }); i >= 0 {
				w = w[:i]
			}
			if len(w) < 2 || len(w) > 3 || !bdf.MatchString(w[0]) {
				it.left("not a PCI address and one or two port types")
				continue
			}
			im.note("comment the lines of %s out, and rebuild the initramfs if it has them: they set the port types too", f.path)
			for i, t := range w[1:] {
				p := it
				if len(w) > 2 {
					p = it.part(fmt.Sprintf("%s port %d: %s", w[0], i+1, t))
				}
				if t != "ib" && t != "eth" && t != "auto" {
					p.left(whyValue)
				} else if why := im.pciPort(w[0], fmt.Sprint(i+1), t, p); why != "" {
					p.left(why)
				}
			}
		}
	}
}

// modprobe reads files of modprobe.d: port types of mlx4_core are converted,
// other options stay in force there.
func (im *importer) modprobe(files []*file) {
	for _, f := range files {
		for _, it := range f.logical(hash) {
			w := strings.Fields(it.text)
			switch {
			case len(w) < 2:
				it.left("not a directive of modprobe.d(5)")
			case w[0] == "options" && w[1] == "mlx4_core":
				im.mlx4Options(it, w)
			case w[0] == "options", w[0] == "alias", w[0] == "softdep":
				it.unneeded("modprobe still reads the file")
			case w[0] == "blacklist" || w[0] == "install" || w[0] == "remove":
				if !udevLoads(w[1]) && !mentionsIB(it.text) {
					it.unneeded("modprobe still reads the file")
				} else if w[0] == "blacklist" || strings.HasSuffix(it.text, "/bin/true") || strings.HasSuffix(it.text, "/bin/false") {
					it.left("it prevents the module from being loaded; remove the line if the module is needed")
				} else {
					it.left("commands that run with a module; check whether a setting of a unit replaces it")
				}
			default:
				it.left("not a directive of modprobe.d(5)")
			}
		}
	}
}

func (im *importer) mlx4Options(it *item, w []string) {
	words := w[2:]
	if len(words) == 0 {
		it.unneeded("no option")
	}
	for _, o := range words {
		p := it
		if len(words) > 1 {
			p = it.part("options mlx4_core " + o)
		}
		list, ok := strings.CutPrefix(o, "port_type_array=")
		if !ok {
			p.unneeded("modprobe still reads the file")
			continue
		}
		types := strings.Split(list, ",")
		var ws []string
		for _, t := range types {
			ws = append(ws, map[string]string{"1": "ib", "2": "eth", "3": "auto"}[t])
		}
		switch {
		case len(ws) > 2 || slices.Contains(ws, ""):
			p.left(whyValue)
		case len(ws) == 1 || ws[0] == ws[1]:
			im.port("port-mlx4", ws[0], p, "Driver=mlx4_core")
		default:
			for i, t := range ws {
				im.port(fmt.Sprintf("port-mlx4-%d", i+1), t, p, "Driver=mlx4_core", fmt.Sprintf("Port=%d", i+1))
			}
		}
		im.note("remove port_type_array= from %s once the units are applied, and rebuild the initramfs if it has the file", it.file.path)
	}
}

// modules reads /etc/modules and files of modules-load.d.
func (im *importer) modules(files []*file) {
	for _, f := range files {
		for _, it := range f.content(hashOrSem) {
			w := strings.Fields(it.text)
			switch {
			case udevLoads(w[0]) && len(w) > 1:
				it.left("options of a module; write \"options " + strings.Join(w, " ") + "\" into a file of /etc/modprobe.d")
			case udevLoads(w[0]):
				it.unneeded("udev loads the module")
			default:
				it.unneeded("the file is still read at boot")
			}
		}
	}
}

// udev names what .link and .rules files do; udevd goes on reading them.
func (im *importer) udev(files []*file) {
	for _, f := range files {
		for _, it := range f.logical(hashOrSem) {
			if strings.HasSuffix(f.path, ".rules") &&
				(strings.Contains(it.text, "RUN") || strings.Contains(it.text, "ATTR{mode}=\"") || strings.Contains(it.text, "PROGRAM")) {
				it.left("a udev rule that runs commands or writes attributes; check whether a setting of a unit replaces it, and remove it")
			} else {
				it.unneeded("systemd-udevd still reads the file")
			}
		}
	}
}

// scripts reads rc.local and scripts of its kind, line by line.
func (im *importer) scripts(files []*file) {
	for _, f := range files {
		own := map[string]*draft{}
		sh := &shell{im: im, known: map[string]bool{}, hops: map[string][]string{}, link: func(name string) *draft {
			if own[name] == nil {
				own[name] = &draft{tool: path.Base(f.path), prefix: "10", name: name, link: name, files: []*file{f}}
			}
			return own[name]
		}}
		depth := 0
		raw := strings.Split(f.text, "\n")
		var docs []hereDoc
		var end, opener *item // end is where the script exits, or may exit
		whyEnded := ""
		for _, it := range f.logical(hash) {
			if end != nil {
				it.left(whyEnded)
				continue
			}
			if len(docs) > 0 {
				if docs[0].ends(raw[it.line-1]) {
					docs, it.with = docs[1:], opener
				} else {
					it.left("text of a here-document, not a command")
				}
				continue
			}
			docs, opener = hereDocs(it.text), it
			first, _, _ := strings.Cut(it.text, " ")
			switch first {
			case "if", "for", "while", "until", "case":
				depth++
			}
			if strings.HasSuffix(it.text, "{") {
				depth++
			}
			switch {
			case depth > 0 || it.text == "}":
				if it.text == "}" || it.text == "fi" || it.text == "done" || it.text == "esac" || strings.HasSuffix(it.text, "; fi") ||
					strings.HasSuffix(it.text, "; done") || strings.HasSuffix(it.text, "; esac") {
					depth = max(0, depth-1)
				}
				it.left(whyShell)
			case strings.HasPrefix(it.text, "set ") || strings.HasPrefix(it.text, "PATH=") || strings.HasPrefix(it.text, "export PATH"):
				it.unneeded("it changes nothing")
			default:
				switch sh.run(it, it.text) {
				case ends:
					end, whyEnded = it, fmt.Sprintf("never run: line %d ends the script", it.line)
				case mayEnd:
					end, whyEnded = it, fmt.Sprintf("it runs only if line %d does not end the script", it.line)
				}
			}
		}
		for _, n := range slices.Sorted(maps.Keys(own)) {
			im.overlays = append(im.overlays, own[n])
		}
		im.note("remove the lines that the units replace from %s", f.path)
	}
}
