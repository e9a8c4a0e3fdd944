package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/importer"
	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/unitfs"
	"ibnetworkd/units"
)

// importPaths is where other tools keep what can be imported. What is behind
// wide is mostly about other things, and is read only if it mentions InfiniBand.
var importPaths = []struct {
	glob string
	wide bool
}{
	{"/etc/sysconfig/network-scripts/ifcfg-*", false}, {"/etc/sysconfig/network/ifcfg-*", false},
	{"/etc/sysconfig/network-scripts/.ifcfg-*", false}, {"/etc/sysconfig/network/.ifcfg-*", false},
	{"/etc/sysconfig/network-scripts/route*-*", false}, {"/etc/sysconfig/network-scripts/rule*-*", false},
	{"/etc/sysconfig/network/ifroute-*", false},
	{"/run/NetworkManager/system-connections/*", false}, {"/etc/NetworkManager/system-connections/*", false},
	{"/usr/lib/NetworkManager/system-connections/*", false},
	{"/run/netplan/*.yaml", false}, {"/etc/netplan/*.yaml", false}, {"/lib/netplan/*.yaml", false}, {"/etc/nmstate/*.yml", false},
	{"/etc/network/interfaces", false},
	{"/etc/systemd/network/*.network", false}, {"/etc/systemd/network/*.netdev", false}, {"/etc/systemd/network/*.link", true},
	{"/run/systemd/network/*.network", false}, {"/run/systemd/network/*.netdev", false}, {"/run/systemd/network/*.link", true},
	{"/usr/local/lib/systemd/network/*.network", false}, {"/usr/local/lib/systemd/network/*.netdev", false},
	{"/usr/lib/systemd/network/*.network", false}, {"/usr/lib/systemd/network/*.netdev", false},
	{"/etc/ipoibmodemtu.conf", false}, {"/etc/infiniband/openib.conf", false}, {"/etc/rdma/rdma.conf", false}, {"/etc/rdma/mlx4.conf", false},
	{"/etc/modprobe.d/*.conf", true}, {"/etc/modules", true}, {"/etc/modules-load.d/*.conf", true},
	{"/etc/rc.local", true}, {"/etc/rc.d/rc.local", true}, {"/etc/init.d/boot.local", true}, {"/etc/udev/rules.d/*.rules", true},
	{"/etc/network/if-*.d/*", true}, {"/etc/NetworkManager/dispatcher.d/*", true}, {"/etc/systemd/system/*.service", true},
	{"/etc/default/opensm", false}, {"/etc/sysconfig/opensm", false}, {"/etc/opensm/opensm.conf", false}, {"/etc/rdma/opensm.conf", false},
	{"/etc/opensm/partitions.conf", false}, {"/etc/rdma/partitions.conf", false}, {"/etc/opensm/prefix-routes.conf", false},
	{"/etc/opensm/qos[\\-_]policy*.conf", false}, {"/etc/opensm/*guid*", false}, {"/etc/opensm/hop[\\-_]weights*", false},
	{"/etc/opensm/*node[\\-_]name[\\-_]map*", false}, {"/etc/rdma/qos-policy.conf", false}, {"/etc/rdma/*node[\\-_]name[\\-_]map*", false},
	{"/var/cache/opensm/guid2lid", false},
	{"/etc/nixos/configuration.nix", true},
}

// leftoverPaths is where a name that is a backup's stands for a file of
// importPaths: it is listed, not read.
var leftoverPaths = []string{"/etc/network/interfaces?*", "/etc/netplan/*.yaml?*", "/etc/netplan/.*.yaml*", "/etc/nmstate/*.yml?*",
	"/etc/systemd/network/*.network?*", "/etc/systemd/network/*.netdev?*", "/etc/systemd/network/*.link?*",
	"/etc/systemd/network/.*.network*", "/etc/systemd/network/.*.netdev*", "/etc/systemd/network/.*.link*",
	"/etc/ipoibmodemtu.conf?*", "/etc/infiniband/openib.conf?*", "/etc/rdma/*.conf?*", "/etc/opensm/*.conf?*"}

// readSource reads a file to import, by its path below the root of the file
// system; it must be a regular one.
func readSource(fsys *unitfs.Dir, name string) (string, error) {
	name = strings.TrimPrefix(name, "/")
	// A link to /dev/null masks the files of its name.
	if masked, err := fsys.Masked(name); err == nil && masked {
		return "", nil
	}
	f, err := fsys.Open(name)
	if err != nil {
		return "", opening(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", fail(exitFailure, "/%s: not a regular file (%v)", name, st.Mode().Type())
	}
	text, err := io.ReadAll(io.LimitReader(f, importer.MaxSize+1))
	return string(text), err
}

// importFile is a file that may become a source.
type importFile struct {
	fsys           *unitfs.Dir
	path           string // below the root of fsys
	wide, optional bool
}

// find adds the files that fit a pattern, of which directories are none.
func find(files []importFile, fsys *unitfs.Dir, pattern string, wide bool) []importFile {
	found, _ := fs.Glob(fsys, strings.TrimPrefix(filepath.Clean(pattern), "/"))
	for _, n := range found {
		if st, err := fs.Stat(fsys, n); err == nil && st.IsDir() {
			continue
		}
		files = append(files, importFile{fsys, "/" + n, wide, true})
	}
	return files
}

// importFiles are the named files, or those in the usual places.
func (a *app) importFiles(names []string) ([]importFile, error) {
	root, host := unitfs.New(a.path("/"), "/"), unitfs.New("/", "/")
	var files []importFile
	for _, n := range names {
		abs, err := filepath.Abs(n)
		if err != nil {
			return nil, err
		}
		path, err := a.within(n)
		if err != nil {
			return nil, err
		}
		f := importFile{fsys: root, path: path}
		if path == abs { // not below --root
			f.fsys = host
		}
		files = append(files, f)
	}
	if len(names) > 0 {
		return files, nil
	}
	for _, p := range importPaths {
		files = find(files, root, p.glob, p.wide)
	}
	for _, p := range leftoverPaths {
		files = append(files, slices.DeleteFunc(find(nil, root, p, false), func(f importFile) bool { return importer.Leftover(f.path) == "" })...)
	}
	// The project's own services are not files of other tools.
	return slices.DeleteFunc(files, func(f importFile) bool {
		name := filepath.Base(f.path)
		return strings.HasSuffix(name, ".service") && (strings.HasPrefix(name, "ibnetworkd") || strings.HasPrefix(name, "ibnetsm@"))
	}), nil
}

// importSources reads the named files, or those in the usual places, and the
// files that belong to them.
func (a *app) importSources(names []string) ([]importer.Source, error) {
	files, err := a.importFiles(names)
	if err != nil {
		return nil, err
	}
	var out []importer.Source
	seen := map[string]bool{}
	for len(files) > 0 {
		x := files[0]
		files = files[1:]
		if seen[x.path] {
			continue
		}
		text, err := readSource(x.fsys, x.path)
		switch {
		case err != nil && x.optional:
			fmt.Fprintln(a.err, "not read:", err)
			continue
		case err != nil:
			return nil, err
		case x.wide && !importer.Mentions(text):
			continue
		}
		seen[x.path] = true
		s := importer.Source{Path: x.path, Text: text}
		out = append(out, s)
		for _, p := range importer.Related(s) {
			files = find(files, x.fsys, p, false)
		}
	}
	if len(out) == 0 {
		return nil, fail(exitNoSuch, "nothing to import in the standard places; name the files")
	}
	return out, nil
}

// importHost is what the import needs to know of the host.
func (a *app) importHost() importer.Host {
	h := importer.Host{NoResolved: true}
	for _, p := range []string{"/usr/lib/systemd/systemd-resolved", "/lib/systemd/systemd-resolved"} {
		if _, err := os.Stat(a.path(p)); err == nil {
			h.NoResolved = false
		}
	}
	root := unitfs.New(a.path("/"), "/")
	if text, err := readSource(root, importer.TimestampsFile); err == nil {
		h.Timestamps = importer.Timestamps(text)
	}
	h.Ifupdown = importer.NetworkManagerConf(networkManagerConf(root))
	if a.root == "" {
		if snap, err := daemon.Observe("/", &units.Set{}, nil); err == nil {
			h.PortGUIDs = map[string]ib.GUID{}
			for i := range snap.Links {
				if _, p := snap.PortOf(&snap.Links[i]); p != nil && !snap.Links[i].IsChild() {
					h.PortGUIDs[snap.Links[i].Name] = p.GUID
				}
			}
		}
	}
	return h
}

// networkManagerConf is the configuration of NetworkManager, in the order in which
// its files override each other (NetworkManager.conf(5)).
func networkManagerConf(root *unitfs.Dir) []string {
	var names []string
	hidden := map[string]bool{} // by a file of the same name in a later directory
	for _, glob := range []string{"/var/lib/NetworkManager/NetworkManager-intern.conf", "/etc/NetworkManager/conf.d/*.conf",
		"/etc/NetworkManager/NetworkManager.conf", "/run/NetworkManager/conf.d/*.conf", "/usr/lib/NetworkManager/conf.d/*.conf"} {
		found := find(nil, root, glob, false)
		slices.Reverse(found)
		for _, f := range found {
			if base := filepath.Base(f.path); !hidden[base] || filepath.Base(filepath.Dir(f.path)) != "conf.d" {
				hidden[base] = true
				names = append(names, f.path)
			}
		}
	}
	var out []string
	for _, n := range slices.Backward(names) {
		if text, err := readSource(root, n); err == nil {
			out = append(out, text)
		}
	}
	return out
}

func (a *app) importCmd() *cobra.Command {
	var write, lines, check bool
	var from string
	c := &cobra.Command{
		Use: "import [FILE...]", Short: "convert other tools' configuration to unit files",
		Long: `Reads other tools' configuration of InfiniBand links: RHEL's ifcfg-* with route-*
and rule-*, SUSE's ifcfg-* with ifroute-* and ifrule-*, NetworkManager keyfiles,
netplan, nmstate, Debian's interfaces, systemd-networkd's .network and .netdev files,
ipoibmodemtu.conf, openib.conf, rdma.conf, mlx4.conf, modprobe.d, /etc/modules,
rc.local and opensm's settings. It prints the equivalent .ibnetwork files, and
everything that was not converted, with the reason. Without FILEs the standard
places are read.

Lines that a tool reads for all links (NetworkManager.conf, networkd.conf, wicked's
/etc/sysconfig/network/dhcp) apply to a link whose own file does not have them.

Every line is accounted for: it is in a unit, or listed as not converted, or needs
no setting (--lines lists those too). Backups such as ifcfg-ib0.bak are listed, not
read. If two files configure one link, the one that their tool would use is
converted and the settings of the others are listed with the rule that decided.
For NetworkManager's profiles the rule is autoconnect, then autoconnect-priority,
then /var/lib/NetworkManager/timestamps. A link of /etc/network/interfaces is
imported from there, unless NetworkManager.conf has managed=true in [ifupdown].
What a tool rejects as a whole, such as a NetworkManager profile without
transport-mode=, is listed and not converted.

A bond of IPoIB links in mode active-backup becomes a unit with its addresses, and
[Bond] with its options in the units of its ports. Other bonds are listed.

A unit is named after its link: 10-ib0.ibnetwork. A unit for links by
hardware address or pattern is 20-..., one for all IPoIB links is
90-infiniband.ibnetwork, and one for the type of a port is 05-port-... or
95-port-.... A .network file keeps its name:
20-ib0.network gives 20-ib0.ibnetwork, so that the units apply in the same order.

Files of the other tool are not changed; --write writes the units to
/etc/systemd/network. The exit status is 0 if a unit results, even if lines are
listed: files of Ethernet links and backups are among them on most hosts. --json has
what is listed as "left", and --check reports whether a link would lose anything.

--check writes nothing and compares the running system, as the other tool
configured it, with the imported units. For each link it prints what the unit would
change, what it cannot set, and what the link has that is not in the unit. It
exits 0 if there is no difference, and 1 if there is.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case check && write:
				return fail(exitUsage, "--check writes nothing: it cannot be combined with --write")
			case check && a.root != "" && from == "":
				return fail(exitUsage, "--check compares with the running system: it cannot be combined with --root, except with --from=FILE")
			case from != "" && !check:
				return fail(exitUsage, "--from requires --check")
			}
			sources, err := a.importSources(args)
			if err != nil {
				return err
			}
			r := importer.Import(a.importHost(), sources)
			if check {
				return a.importCheck(r, sources, from)
			}
			return a.imported(r, sources, write, lines)
		},
	}
	c.Flags().BoolVar(&write, "write", false, "write the units to /etc/systemd/network instead of printing them")
	c.Flags().BoolVar(&lines, "lines", false, "list the result of every line of the files")
	c.Flags().BoolVar(&check, "check", false, "compare the running system with the units; write nothing")
	c.Flags().StringVar(&from, "from", "", "with --check, compare with the system recorded in `FILE` (ibnetctl capture)")
	return c
}

// imported prints or writes the result of an import.
func (a *app) imported(r importer.Result, sources []importer.Source, write, lines bool) error {
	target := func(u importer.Unit) string { return a.path(filepath.Join(units.Dirs[0], u.Name)) }
	switch {
	case write:
		// All of them or none.
		for _, u := range r.Units {
			if _, err := os.Lstat(target(u)); err == nil {
				return fail(exitFailure, "%s exists, nothing was written: move it away first", target(u))
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		for _, u := range r.Units {
			if err := putFile(target(u), []byte(u.Text)); err != nil {
				return err
			}
			fmt.Fprintln(a.err, "wrote", target(u))
		}
	case a.json:
		if err := a.emit(importForm(r)); err != nil {
			return err
		}
	default:
		for i, u := range r.Units {
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			fmt.Fprintf(a.out, "%s\n%s", a.paint(bold, "### "+u.Name), u.Text)
		}
	}
	if write || !a.json {
		a.importRest(r, lines)
	}
	if write && len(r.Units) > 0 {
		fmt.Fprintln(a.err, "next: ibnetctl verify; ibnetctl plan; ibnetctl reload")
	}
	if len(r.Units) == 0 {
		return noUnits(sources)
	}
	return nil
}

// noUnits is the error of an import that nothing comes of.
func noUnits(sources []importer.Source) error {
	return fail(exitFailure, "nothing to import in %d %s: no unit results from it", len(sources), plural(len(sources), "file", "files"))
}

// importRest prints what was not converted and what is to be done.
func (a *app) importRest(r importer.Result, lines bool) {
	width := a.errWidth
	for left := r.Left; len(left) > 0; {
		// Lines of one file with one reason are listed below it.
		n := 1
		for n < len(left) && left[n].Path == left[0].Path && left[n].Why == left[0].Why && left[n].Line > 0 && left[0].Line > 0 {
			n++
		}
		if n == 1 {
			printWrapped(a.err, width, "", fmt.Sprint("not converted: ", left[0]))
		} else {
			printWrapped(a.err, width, "", fmt.Sprintf("not converted: %s:", importer.Left{Path: left[0].Path, Why: left[0].Why}))
			for _, l := range left[:n] {
				printWrapped(a.err, width, "  ", fmt.Sprintf("%d: %s", l.Line, importer.OneLine(l.Text)))
			}
		}
		left = left[n:]
	}
	atDefault := importer.AtDefault(r.Lines)
	for _, p := range slices.Sorted(maps.Keys(atDefault)) {
		n := atDefault[p]
		printWrapped(a.err, width, "", fmt.Sprintf("not needed: %s: %d %s of opensm at %s (--lines lists them)", importer.OneLine(p), n,
			plural(n, "setting", "settings"), plural(n, "its default", "their defaults")))
	}
	if lines {
		for _, l := range r.Lines {
			place := l.Path
			if l.Line > 0 {
				place += fmt.Sprintf(":%d", l.Line)
			}
			why := ""
			if l.Why != "" {
				why = " (" + l.Why + ")"
			}
			printWrapped(a.err, width, "", fmt.Sprintf("%s: %s%s: %s", place, l.Fate, why, l.Text))
		}
	}
	for _, n := range r.Notes {
		what, command, long := strings.Cut("to do: "+n, ": sed ")
		if !long || width == 0 {
			printWrapped(a.err, width, "", "to do: "+n)
			continue
		}
		printWrapped(a.err, width, "", what+":")
		fmt.Fprintln(a.err, "  sed", command) // in one piece, to be pasted
	}
}

func importForm(r importer.Result) answer.Import {
	return answer.Import{Schema: answer.Schema, Units: jsonUnits(r.Units), Left: append([]importer.Left{}, r.Left...),
		Notes: append([]string{}, r.Notes...), Lines: append([]importer.Line{}, r.Lines...)}
}

func jsonUnits(us []importer.Unit) []answer.ImportedUnit {
	out := []answer.ImportedUnit{}
	for _, u := range us {
		out = append(out, answer.ImportedUnit{Name: u.Name, Text: u.Text})
	}
	return out
}
