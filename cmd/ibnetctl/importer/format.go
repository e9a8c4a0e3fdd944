package importer

import (
	"path"
	"slices"
	"strings"
)

// formatRefused is the format of a source that newFile refused.
const formatRefused = "refused"

// notRead are formats that are recognized and not read, and why.
var notRead = map[string]string{
	"": "unknown format; for the known ones: ibnetctl import --help",
	"nix": "a NixOS module is a program and is not evaluated: import the built system (/etc/systemd/network/*.network, " +
		"/etc/systemd/network/*.netdev), " +
		"or write the units with environment.etc",
	"service":   "a service or timer: its commands are not read; check whether settings of a unit replace them, then disable it",
	"ibnetwork": "already a unit",
	"guid2mkey": "the M_Keys that opensm noted of ports: ibnetsm knows the key of its KeyFile= only",
}

// leftoverSuffixes are what editors and package managers append to the name of a
// file that is not in force.
var leftoverSuffixes = []string{"~", ".bak", ".backup", ".orig", ".old", ".save", ".saved", ".tmp", ".rej", ".rpmnew", ".rpmorig",
	".rpmsave", ".dpkg-old", ".dpkg-dist",
	".dpkg-new", ".dpkg-tmp", ".dpkg-bak", ".dpkg-backup", ".dpkg-remove", ".ucf-old", ".ucf-new", ".ucf-dist", ".swp", ".swo", ".swx",
	".cfsaved", ".augnew", ".augsave", ".pacnew", ".pacsave", ".pacorig", ",v"}

// Leftover returns why a file is not a source by its name, "" if it is one: backups,
// what package managers leave behind, editors' files.
func Leftover(p string) string {
	base := path.Base(p)
	switch {
	case strings.HasPrefix(base, "."), strings.HasPrefix(base, "#"):
	case slices.ContainsFunc(leftoverSuffixes, func(s string) bool { return strings.HasSuffix(base, s) }):
	default:
		return ""
	}
	switch {
	case path.Dir(p) == nmDirs[1] && !strings.HasPrefix(base, ".") && !strings.HasSuffix(base, "~") && !strings.HasSuffix(base, ".swp"):
		return "not read: a backup by its name, but NetworkManager loads every file of the directory: move it away, or rename it to import it"
	case strings.Contains(p, "interfaces.d/"):
		return "not read: a backup by its name; ifupdown reads it if /etc/network/interfaces sources the directory by a glob, rename it " +
			"to import it"
	}
	return "not read: a backup by its name; rename it to import it"
}

// generated returns why a profile of NetworkManager is not a source: it follows from
// another one. "" is one that a person wrote.
func generated(s Source) string {
	switch {
	case !strings.HasPrefix(s.Path, "/run/NetworkManager/"):
	case strings.HasPrefix(path.Base(s.Path), "netplan-"):
		return "not read: netplan generates it from its own files"
	case strings.Contains(s.Text, "\nnm-generated=true"):
		return "not read: NetworkManager generates it for a link that another tool configured"
	}
	return ""
}

// Format returns what a source is, by its name and, where that is not enough, by
// its text; "" is unknown.
func Format(s Source) string {
	base := path.Base(s.Path)
	dir := path.Base(path.Dir(s.Path))
	has := func(words ...string) bool {
		t := "\n" + s.Text
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(t, w) })
	}
	suffix := func(list ...string) bool {
		return slices.ContainsFunc(list, func(x string) bool { return strings.HasSuffix(base, x) })
	}
	prefix := func(list ...string) bool {
		return slices.ContainsFunc(list, func(x string) bool { return strings.HasPrefix(base, x) })
	}
	switch {
	case prefix("ifroute-", "ifrule-", "ifsysctl"), (base == "routes" || base == "dhcp") && dir == "network":
		return "wicked"
	case prefix("ifcfg-"):
		if strings.Contains(s.Path, "/sysconfig/network/") || has("\nSTARTMODE=", "\nIPOIB", "\nPREFIXLEN") {
			return "wicked"
		}
		return "ifcfg"
	case base == "network" && dir == "sysconfig":
		return "ifcfg"
	case prefix("route-", "route6-", "rule-", "rule6-") && !suffix(".yaml", ".yml"):
		return "ifcfg"
	case isNMConf(s.Path):
		return "nm-conf"
	case base == "networkd.conf", dir == "networkd.conf.d" && suffix(".conf"):
		return "networkd-conf"
	case suffix(".nmconnection"), dir == "system-connections":
		return "keyfile"
	case suffix(".network", ".netdev"), suffix(".conf") && (strings.HasSuffix(dir, ".network.d") || strings.HasSuffix(dir, ".netdev.d")):
		return "networkd"
	case suffix(".ibnetwork"), strings.HasSuffix(dir, ".ibnetwork.d"):
		return "ibnetwork"
	case suffix(".yaml", ".yml"):
		switch {
		case has("\nnetwork:") || dir == "netplan":
			return "netplan"
		case dir == "nmstate", has("\ninterfaces:", "\nroutes:", "\ndns-resolver:", "desiredState:"):
			return "nmstate"
		}
		return ""
	case suffix(".nix"):
		return "nix"
	case suffix(".link", ".rules"):
		return "udev"
	case suffix(".service", ".timer", ".target"):
		return "service"
	case base == "modules", dir == "modules-load.d", dir == "modules" && suffix(".conf"):
		return "modules"
	case base == "interfaces", dir == "interfaces.d":
		return "interfaces"
	case prefix("ipoibmodemtu"):
		return "ipoibmodemtu"
	case prefix("openib"), base == "rdma.conf":
		return "openib"
	case dir == "modprobe.d", base == "modprobe.conf":
		return "modprobe"
	case base == "mlx4.conf":
		return "mlx4"
	case prefix("rc.local", "boot.local", "after.local"), dir == "dispatcher.d", strings.HasPrefix(dir, "if-") &&
		strings.HasSuffix(dir, ".d"), suffix(".sh"):
		return "script"
	}
	if f := smNamed(base); f != "" {
		return f
	}
	switch {
	case has("\n[infiniband]"):
		return "keyfile"
	case has("\n[Match]", "\n[NetDev]"):
		return "networkd"
	case has("\niface "):
		return "interfaces"
	case has("\nmode[", "\nmtu["):
		return "ipoibmodemtu"
	case has("\nIPOIB", "\nSTARTMODE="):
		return "wicked"
	case has("\nDEVICE="):
		return "ifcfg"
	case has("\nnetwork:"):
		return "netplan"
	case has("\ninterfaces:"):
		return "nmstate"
	case has("options mlx4_core"):
		return "modprobe"
	case strings.HasPrefix(s.Text, "#!"), has("/sys/class/net/"):
		return "script"
	}
	return smFormat(s.Text)
}

// Related are the patterns of files that belong to a source: a tool reads them
// with it. They are absolute; what does not exist is meant to be skipped.
func Related(s Source) []string {
	dir, base := path.Split(s.Path)
	escape := strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace
	switch Format(s) {
	case "opensm":
		var out []string
		for p := range namedFiles(s) {
			out = append(out, escape(p))
		}
		slices.Sort(out)
		return out
	case "ifcfg":
		if n, ok := strings.CutPrefix(base, "ifcfg-"); ok {
			d, n := escape(dir), escape(n)
			return []string{d + "route-" + n, d + "route6-" + n, d + "rule-" + n, d + "rule6-" + n, path.Join(d, "../network"), nmConfFiles[0],
				nmConfFiles[1], nmConfFiles[2], nmConfFiles[3], nmConfFiles[4]}
		}
	case "wicked":
		if n, ok := strings.CutPrefix(base, "ifcfg-"); ok {
			d, n := escape(dir), escape(n)
			return []string{d + "ifroute-" + n, d + "routes", d + "ifrule-" + n, d + "ifsysctl-" + n, d + "ifsysctl", d + "dhcp"}
		}
	case "keyfile", "nmstate":
		return nmConfFiles
	case "networkd":
		if strings.HasSuffix(base, ".network") || strings.HasSuffix(base, ".netdev") {
			out := []string{escape(s.Path) + ".d/*.conf", "/etc/systemd/networkd.conf"}
			for _, d := range networkdDirs {
				out = append(out, d+escape(base)+".d/*.conf", path.Join(d, "../networkd.conf.d")+"/*.conf")
			}
			return out
		}
	case "interfaces":
		var out []string
		for l := range strings.Lines(s.Text) {
			f := strings.Fields(l)
			if len(f) != 2 || len(out) >= 64 {
				continue
			}
			p := f[1]
			if !path.IsAbs(p) {
				p = path.Join(dir, p)
			}
			switch f[0] {
			case "source":
				out = append(out, p)
			case "source-directory":
				out = append(out, p+"/*")
			}
		}
		return out
	}
	return nil
}

// Mentions reports whether a text is likely to be about InfiniBand, for files
// that are mostly about other things.
func Mentions(text string) bool {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' && mentionsIB(l) {
			return true
		}
	}
	return false
}
