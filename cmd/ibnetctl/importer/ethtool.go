package importer

import (
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/units"
)

// ethtoolGroups are the options of ethtool whose settings a unit has.
var ethtoolGroups = map[string]units.EthtoolGroup{
	"-G": units.EthtoolRings, "--set-ring": units.EthtoolRings, "-L": units.EthtoolChannels, "--set-channels": units.EthtoolChannels,
	"-C": units.EthtoolCoalesce, "--coalesce": units.EthtoolCoalesce,
}

// ethtool carries over one setting by ethtool's word for it; why is not empty for one
// that a unit does not have.
func (d *draft) ethtool(g units.EthtoolGroup, word, value string, it *item) (why string) {
	for p := range units.EthtoolParams {
		if p.Group() != g || p.Word() != word {
			continue
		}
		s := units.EthtoolSetting{Param: p}
		if b, ok := boolean(value); p.Bool() && ok {
			if b == "yes" {
				s.N = 1
			}
		} else if n, err := strconv.ParseUint(value, 10, 32); err == nil && !p.Bool() {
			s.N = uint32(n)
		} else {
			return whyValue
		}
		d.set("Link", p.Key(), s.String(), it)
		return ""
	}
	return whyEthtool
}

// ethtoolCommand carries over the arguments of ethtool after the option and the link.
func (d *draft) ethtoolCommand(option string, w []string, it *item) (why string) {
	g, ok := ethtoolGroups[option]
	if !ok || len(w) == 0 || len(w)%2 != 0 {
		return whyEthtool
	}
	for pair := range slices.Chunk(w, 2) {
		if why := d.ethtool(g, pair[0], pair[1], it); why != "" {
			return why
		}
	}
	return ""
}

// ethtoolOptions carries over a variable of an ifcfg file that has the arguments of
// commands, with semicolons between them.
func (d *draft) ethtoolOptions(value string, it *item) {
	commands := strings.Split(value, ";")
	for _, c := range commands {
		at, why := it, whyEthtool
		if len(commands) > 1 {
			at = it.part(strings.TrimSpace(c))
		}
		if w := strings.Fields(c); len(w) > 2 {
			why = whyOther
			if slices.Contains([]string{d.link, "iface", "$DEVICE", "${DEVICE}"}, w[1]) { // iface is wicked's
				why = d.ethtoolCommand(w[0], w[2:], at)
			}
		}
		if why != "" {
			at.left(why)
		}
	}
}

// keyfileEthtool carries over a key of NetworkManager's [ethtool]: ring-rx ...
func keyfileEthtool(d *draft, e *entry) {
	group, word, _ := strings.Cut(e.key, "-")
	g, ok := map[string]units.EthtoolGroup{"ring": units.EthtoolRings, "channels": units.EthtoolChannels,
		"coalesce": units.EthtoolCoalesce}[group]
	why := whyEthtool
	if ok {
		why = d.ethtool(g, word, e.value, e.item)
	}
	if why != "" {
		e.left(why)
	}
}

// ifaceEthtool carries over an option of Debian's ethtool for ifupdown.
func ifaceEthtool(d *draft, o *variable) {
	why := whyEthtool
	if word, ok := strings.CutPrefix(o.key, "hardware-dma-ring-"); ok {
		why = d.ethtool(units.EthtoolRings, word, o.value, o.item)
	} else if word, ok := strings.CutPrefix(o.key, "hardware-irq-coalesce-"); ok {
		why = d.ethtool(units.EthtoolCoalesce, word, o.value, o.item)
	}
	if why != "" {
		o.left(why)
	}
}
