package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ibnetworkd/cmd/ibnetctl/importer"
	"ibnetworkd/internal/testkit"

	"golang.org/x/sys/unix"
)

// importRoot runs ibnetctl import on a tree with the given files, of which one
// that begins with "->" is a link.
func importRoot(t *testing.T, files map[string]string, args ...string) (stdout, stderr string) {
	t.Helper()
	root := t.TempDir()
	testkit.WriteFiles(t, root, files)
	var out, errs bytes.Buffer
	run(context.Background(), append([]string{"--root", root, "import"}, args...), strings.NewReader(""), &out, &errs)
	return out.String(), errs.String()
}

const (
	profiles = "etc/NetworkManager/system-connections/"
	profile  = "[connection]\ntype=infiniband\ninterface-name=ib0\nuuid=11111111-2222-4333-8444-00000000000"
	stanza   = "auto ib0\niface ib0 inet static\n  address 10.0.0.1/24\n"
)

// Which profile applies depends on files of NetworkManager that are not imported.
func TestImportReadsNetworkManagersState(t *testing.T) {
	two := map[string]string{profiles + "a.nmconnection": profile + "1\n[infiniband]\ntransport-mode=datagram\nmtu=2044\n",
		profiles + "b.nmconnection": profile + "2\n[infiniband]\ntransport-mode=datagram\nmtu=4092\n"}
	with := func(files map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		maps.Copy(out, files)
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	const conf, stamps = "etc/NetworkManager/NetworkManager.conf", "var/lib/NetworkManager/timestamps"
	for _, tt := range []struct {
		name      string
		files     map[string]string
		out, errs string
	}{
		{"the later", with(two, stamps, "[timestamps]\n11111111-2222-4333-8444-000000000001=5\n11111111-2222-4333-8444-000000000002=9\n"),
			"MTUBytes=4092", "NetworkManager activated it last (9, here 5,"},
		{"the earlier file", with(two, stamps, "[timestamps]\n11111111-2222-4333-8444-000000000001=5\n"),
			"MTUBytes=2044", "NetworkManager activated it last (5, here never,"},
		{"unknown", two, "MTUBytes=2044", "was not read"},
		{"hidden", with(two, profiles+"11111111-2222-4333-8444-000000000001.nmmeta", "->/dev/null",
			"usr/lib/NetworkManager/system-connections/c.nmconnection", profile+"1\n[infiniband]\ntransport-mode=datagram\nmtu=1500\n"),
			"MTUBytes=2044", "hides the profile"},
		{"ifupdown", with(two, "etc/network/interfaces", stanza), "Address=10.0.0.1/24", "managed= in NetworkManager.conf is not set"},
		{"ifupdown unmanaged", with(two, "etc/network/interfaces", stanza, conf, "[ifupdown]\nmanaged=false\n"),
			"Address=10.0.0.1/24", "(managed=false in [ifupdown]"},
		{"ifupdown managed", with(two, "etc/network/interfaces", stanza, conf, "[ifupdown]\nmanaged=false\n",
			"usr/lib/NetworkManager/conf.d/10-b.conf", "[ifupdown]\nmanaged=false\n",
			"etc/NetworkManager/conf.d/10-a.conf", "[ifupdown]\nmanaged=true\n"), "MTUBytes=2044", "managed=true"},
		{"a file hidden by its name", with(two, "etc/network/interfaces", stanza, "etc/NetworkManager/conf.d/10-a.conf", "->/dev/null",
			"usr/lib/NetworkManager/conf.d/10-a.conf", "[ifupdown]\nmanaged=true\n"), "Address=10.0.0.1/24", "is not set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs := importRoot(t, tt.files)
			if !strings.Contains(out, tt.out) || strings.Count(out, "### ") != 1 || !strings.Contains(errs, tt.errs) {
				t.Errorf("want %q and %q in\n%s\n%s", tt.out, tt.errs, out, errs)
			}
		})
	}
}

// A backup beside the files of the standard places is named, and only that.
func TestImportNamesBackups(t *testing.T) {
	files := map[string]string{"etc/systemd/network/20-ib0.network": "[Match]\nName=ib0\n[Link]\nMTUBytes=2044\n",
		"etc/systemd/network/20-ib0.network.d/10.conf": "[Network]\nAddress=10.0.0.1/24\n",
		"etc/systemd/network/10-ib0.link":              "[Match]\nOriginalName=ib*\n[Link]\nName=ib7\n",
		"etc/network/interfaces.d/eth0":                "iface eth0 inet dhcp\n", "etc/network/interfaces": "auto lo\niface lo inet loopback\n"}
	backups := []string{"etc/systemd/network/20-ib0.network~", "etc/systemd/network/20-ib0.network.dpkg-old",
		"etc/systemd/network/ib0.8001.netdev.rpmsave", "etc/systemd/network/10-ib0.link.orig", "etc/systemd/network/.20-ib0.network.swp",
		"etc/network/interfaces.bak", "etc/network/interfaces~", "etc/netplan/50.yaml.bak", "etc/rdma/mlx4.conf.rpmnew",
		"etc/sysconfig/network-scripts/ifcfg-ib0.bak", profiles + "ib0.nmconnection.bak"}
	for _, b := range backups {
		files[b] = "[Match]\nName=ib1\n"
	}
	out, errs := importRoot(t, files)
	if strings.Count(out, "### ") != 1 || !strings.Contains(out, "### 20-ib0.ibnetwork") || !strings.Contains(out, "Address=10.0.0.1/24") {
		t.Errorf("\n%s", out)
	}
	for _, b := range backups {
		if !strings.Contains(errs, "/"+b+": not read: a backup by its name") {
			t.Errorf("%s is not named in\n%s", b, errs)
		}
	}
	if strings.Contains(errs, "regular") {
		t.Errorf("a directory is listed:\n%s", errs)
	}
}

// Scripts and services are found where other tools run them, if they are about
// InfiniBand, and the default route of the host beside its ifcfg files.
func TestImportFindsScripts(t *testing.T) {
	out, errs := importRoot(t, map[string]string{
		"etc/sysconfig/network-scripts/ifcfg-ib0":       "DEVICE=ib0\nTYPE=InfiniBand\nIPADDR=10.0.0.1\nPREFIX=24\n",
		"etc/sysconfig/network":                         "GATEWAY=10.0.0.254\n",
		"etc/network/if-up.d/mode":                      "#!/bin/sh\necho connected > /sys/class/net/ib0/mode\n",
		"etc/network/if-up.d/other":                     "#!/bin/sh\nlogger up\n",
		"etc/NetworkManager/dispatcher.d/20-mtu":        "#!/bin/sh\nip link set ib0 mtu 65520\n",
		"etc/systemd/system/ipoib-mode.service":         "[Service]\nExecStart=/bin/sh -c 'echo connected > /sys/class/net/ib1/mode'\n",
		"etc/systemd/system/multi-user.target.wants/ib": "x",
		"etc/systemd/system/ibnetworkd.service":         "[Unit]\nDescription=InfiniBand\n[Service]\nExecStart=/usr/sbin/ibnetworkd\n",
		"etc/systemd/system/ibnetsm@.service":           "[Service]\nExecStart=/usr/sbin/ibnetsm run # InfiniBand\n",
	})
	if strings.Contains(errs, "ibnetworkd.service") || strings.Contains(errs, "ibnetsm@") {
		t.Errorf("own services are listed:\n%s", errs)
	}
	for _, want := range []string{"Gateway=10.0.0.254", "Mode=connected", "MTUBytes=65520"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "/etc/systemd/system/ipoib-mode.service: a service or timer") || strings.Contains(errs, "other") {
		t.Errorf("\n%s", errs)
	}
}

// Lines that are not converted for one reason are listed below it.
func TestImportGroupsReasons(t *testing.T) {
	_, errs := importRoot(t, map[string]string{
		profiles + "a.nmconnection": profile + "1\nautoconnect=false\n[infiniband]\ntransport-mode=datagram\nmtu=2044\n",
		profiles + "b.nmconnection": profile + "2\n[infiniband]\ntransport-mode=datagram\nmtu=4092\n"})
	const lines = "\n  3: interface-name=ib0\n  5: autoconnect=false\n  7: transport-mode=datagram\n  8: mtu=2044\n"
	if strings.Count(errs, "not used:") != 1 || !strings.Contains(errs, lines) {
		t.Errorf("\n%s", errs)
	}
}

// Links of an image stay below its root, for reading and for writing, and what is
// not a regular file is named, not waited for.
func TestImportStaysBelowTheRoot(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, d := range []string{"etc/network/interfaces.d", "srv/units", "etc/systemd"} {
		testkit.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	write := func(path, text string) {
		t.Helper()
		testkit.WriteFile(t, path, text)
	}
	link := func(target, name string) {
		t.Helper()
		testkit.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	write(filepath.Join(outside, "stolen"), "auto ib7\niface ib7 inet static\n  address 10.7.0.1/24\n")
	write(filepath.Join(root, "srv/ib1"), "auto ib1\niface ib1 inet static\n  address 10.1.0.1/24\n")
	write(filepath.Join(root, "etc/network/interfaces"), stanza+"source /etc/network/interfaces.d/*\nsource ../../../../../.."+outside+"/*\n")
	link(filepath.Join(outside, "stolen"), "etc/network/interfaces.d/a")
	link("/srv/ib1", "etc/network/interfaces.d/b")
	link("/srv/units", "etc/systemd/network")
	testkit.NoError(t, unix.Mkfifo(filepath.Join(root, "etc/network/interfaces.d/c"), 0o644))
	var out bytes.Buffer
	if code := run(context.Background(), []string{"--root", root, "import", "--write"}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, n := range []string{"10-ib0.ibnetwork", "10-ib1.ibnetwork"} {
		if _, err := os.Stat(filepath.Join(root, "srv/units", n)); err != nil {
			t.Error(err)
		}
	}
	if strings.Contains(out.String(), "ib7") || !strings.Contains(out.String(), "interfaces.d/c: not a regular file") {
		t.Errorf("\n%s", out.String())
	}
}

// Of opensm.conf only what was set is listed, and no key.
func TestImportOfOpenSMShowsWhatWasSet(t *testing.T) {
	out, errs := importRoot(t, map[string]string{"etc/opensm/opensm.conf": "packet_life_time 0x12\nlog_flags 0x3\nm_key 0x5ec4e7\n" +
		"m_key_protection_level 2\nperfmgr FALSE\nmax_op_vls 3\n"})
	for _, want := range []string{"KeyFile=/etc/ibnetworkd/sm.keys", "MKeyProtect=2", "MKeyLeaseSec=0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, want := range []string{"opensm.conf: 3 settings of opensm at their defaults", "opensm.conf:6: ", "install -D -o ibnetsm -m 0600"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	_, lines := importRoot(t, map[string]string{"etc/opensm/opensm.conf": "m_key 0x5ec4e7\n"}, "--lines")
	if all := out + errs + lines; strings.Contains(all, "5ec4e7") || strings.Contains(errs, "log_flags") {
		t.Errorf("a key or a default is shown:\n%s", all)
	}
}

// On a terminal the command that copies keys is in one piece, to be pasted.
func TestImportBreaksNoCommand(t *testing.T) {
	r := importer.Import(importer.Host{}, []importer.Source{{Path: "/etc/opensm/opensm.conf", Text: "m_key 0x5\nsm_key 0x7\n"}})
	var errs bytes.Buffer
	(&app{err: &errs, errWidth: 80}).importRest(r, false)
	n := 0
	for line := range strings.Lines(errs.String()) {
		if strings.HasPrefix(line, "  sed -nE '") && strings.HasSuffix(line, " /etc/ibnetworkd/sm.keys\n") {
			n++
		} else if len(line) > 81 || strings.Contains(line, "[[:space:]]") {
			t.Error(line)
		}
	}
	if n != 1 {
		t.Error(errs.String())
	}
}

// The files that opensm.conf names are read with it, wherever they are; those of /etc/opensm
// are read without it too.
func TestImportReadsFilesOfOpenSM(t *testing.T) {
	const guid = "0x0002c90200000001\n"
	out, errs := importRoot(t, map[string]string{"etc/opensm/opensm.conf": "routing_engine updn\nroot_guid_file /srv/fabric/spines\n" +
		"partition_config_file /etc/opensm/partitions.conf\n", "srv/fabric/spines": guid + "root:x:0:0\n"})
	if !strings.Contains(out, "RootGUIDFile=/srv/fabric/spines\n") || strings.Contains(out, "PartitionsFile=") ||
		!strings.Contains(errs, "not converted: /srv/fabric/spines:2: ") {
		t.Errorf("%s\n%s", out, errs)
	}
	out, errs = importRoot(t, map[string]string{"etc/opensm/root_guid_file": guid, "etc/opensm/ib-node-name-map": "0x2 \"a\"\n",
		"etc/opensm/qos-policy.conf": "qos-setup\nend-qos-setup\n"})
	for _, want := range []string{"RootGUIDFile=/etc/opensm/root_guid_file\n", "NodeNameMap=/etc/opensm/ib-node-name-map\n",
		"QoSPolicyFile=/etc/opensm/qos-policy.conf\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s\n%s", want, out, errs)
		}
	}
	if !strings.Contains(errs, "/etc/opensm/qos-policy.conf: qos-setup has no effect") {
		t.Errorf("no line of qos-setup in\n%s", errs)
	}
}

// The commands that a reason names exist, with their options.
func TestImportNamesCommands(t *testing.T) {
	named := regexp.MustCompile(`\bibnetctl ([a-z]+)((?: [a-z]+| --[a-z-]+)*)`)
	n := 0
	for line := range strings.Lines(string(testkit.ReadFile(t, "importer/opensm.txt"))) {
		reason, ok := strings.CutPrefix(line, "= ")
		if !ok {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(reason, -1) {
			n++
			c, _, err := (&app{}).command().Find(m[1:2])
			if err != nil || c.Name() != m[1] {
				t.Errorf("%q names no command of ibnetctl: %v", m[0], err)
				continue
			}
			for _, w := range strings.Fields(m[2]) {
				if flag, ok := strings.CutPrefix(w, "--"); ok && c.Flags().Lookup(flag) == nil {
					t.Errorf("%q: ibnetctl %s has no option %s", m[0], m[1], w)
				}
			}
		}
	}
	if n < 3 {
		t.Errorf("only %d commands are named", n)
	}
}
