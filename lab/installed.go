package lab

import (
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ibnetworkd/dist"
)

// places say where a guest has the files of dist: where install.sh puts them, but for
// the units, which are where Config.Units are looked for first.
var places = []struct{ from, to string }{
	{"systemd/*.service", unitPlace},
	{"systemd/*.socket", unitPlace},
	{"systemd/*.path", unitPlace},
	{"udev/*.rules", "/usr/lib/udev/rules.d"},
	{"sysusers/*.conf", "/usr/lib/sysusers.d"},
	{"tmpfiles/*.conf", "/usr/lib/tmpfiles.d"},
	{"dbus/*.conf", "/usr/share/dbus-1/system.d"},
	{"polkit/*.policy", "/usr/share/polkit-1/actions"},
	{"prometheus/*.json", "/usr/share/ibnetworkd/prometheus"},
	{"prometheus/*d.rules.yml", "/usr/share/ibnetworkd/prometheus"},
}

const (
	unitPlace = "/etc/systemd/system"

	// usersUnit does at boot what the package's script does once.
	usersUnit = "lab-sysusers.service"
	usersText = "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=systemd-udevd.service systemd-udev-trigger.service " +
		"ibnetworkd.service\n" +
		"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=systemd-sysusers /usr/lib/sysusers.d/ibnetworkd.conf\n"

	// enabledUnit is what the package's script enables, and with it what its Also= names.
	enabledUnit = "ibnetworkd.service"
)

// Programs are the import paths of the programs that the package installs.
var Programs = []string{"ibnetworkd/cmd/ibnetworkd", "ibnetworkd/cmd/ibnetctl", "ibnetworkd/cmd/ibnetsm"}

// installedFiles are the files of dist by their names in a guest.  They are as they
// are, but for the folder that the programs are in.
func installedFiles() map[string]string {
	bin := "=" + shareDir + "/bin/ibnet"
	programs := strings.NewReplacer("=/usr/sbin/ibnet", bin, "=/usr/bin/ibnet", bin)
	files := map[string]string{}
	for _, p := range places {
		found, err := fs.Glob(dist.Files, p.from)
		if err != nil {
			panic(err) // the patterns are above
		}
		for _, f := range found {
			text, err := dist.Files.ReadFile(f)
			if err != nil {
				panic(err) // it is embedded
			}
			files[path.Join(p.to, path.Base(f))] = programs.Replace(string(text))
		}
	}
	return files
}

// install adds what Installed asks for.  What c has itself of it stays; so a second time
// changes nothing.
func (c Config) install() Config {
	for _, p := range Programs {
		named := func(bin string) bool { return filepath.Base(bin) == path.Base(p) }
		if !slices.ContainsFunc(c.Bins, named) {
			c.Bins = append(slices.Clip(c.Bins), p)
		}
	}
	files := installedFiles()
	files[path.Join(unitPlace, usersUnit)] = usersText
	maps.Copy(files, c.Files)
	c.Files = files
	if !slices.Contains(c.Units, usersUnit) {
		c.Units = append(slices.Clip(c.Units), usersUnit)
	}
	return c
}
