package probe

import (
	"os"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/smctl"
)

// What a port is, from files as the kernel and firmware have them.
func TestInspect(t *testing.T) {
	const nvswitch = "\x82\x0d\x00HGX NVSwitch \x90\x20\x00PN\x04ABCDV0\x0bSMDL=SW_MNGRV\x01\x00\x78"
	for _, tt := range []struct {
		name  string
		files map[string]string
		bar   smctl.Bar
		final bool
		err   bool
	}{
		{"a card", map[string]string{"umad": "", "issm": "", "vendor": "0x15b3\n", "vpd": "\x82\x05\x00MT..."}, smctl.BarNone, true, false},
		{"a card without VPD", map[string]string{"umad": "", "issm": "", "vendor": "0x15b3\n"}, smctl.BarNone, true, false},
		{"a virtual function", map[string]string{"umad": "", "vendor": "0x15b3\n"}, smctl.BarNoQP0, false, false},
		{"an NVSwitch", map[string]string{"umad": "", "issm": "", "vendor": "0x15b3\n", "vpd": nvswitch}, smctl.BarNVSwitch, true, false},
		{"an NVSwitch before ib_umad is loaded", map[string]string{"vendor": "0x15b3\n", "vpd": nvswitch}, smctl.BarNVSwitch, true, false},
		{"no PCI", map[string]string{"umad": "", "issm": "", "vpd": nvswitch}, smctl.BarNVSwitch, true, false},
		{"another vendor is not asked", map[string]string{"umad": "", "issm": "", "vendor": "0x8086\n", "vpd/": ""},
			smctl.BarNone, true, false},
		{"a VPD that cannot be read", map[string]string{"umad": "", "issm": "", "vendor": "0x15b3\n", "vpd/": ""},
			smctl.BarUnknown, false, true},
		{"no ib_umad yet", map[string]string{"vendor": "0x15b3\n"}, smctl.BarNone, false, false},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			p := filepath.Join(root, "sys", name)
			testkit.WriteFile(t, p, text)
		}
		write("class/infiniband/mlx5_0/device/x", "")
		for name, text := range tt.files {
			switch name {
			case "umad", "issm":
				write("class/infiniband_mad/"+name+"3/ibdev", "mlx5_0\n")
				write("class/infiniband_mad/"+name+"3/port", "1\n")
			case "vpd/":
				testkit.NoError(t, os.Mkdir(filepath.Join(root, "sys/class/infiniband/mlx5_0/device/vpd"), 0o755))
			default:
				write("class/infiniband/mlx5_0/device/"+name, text)
			}
		}
		bar, final, err := Inspect(sysfs.New(root), "mlx5_0", 1)
		if bar != tt.bar || final != tt.final || (err != nil) != tt.err {
			t.Errorf("%s: %v, final %v, %v", tt.name, bar, final, err)
		}
	}
}
