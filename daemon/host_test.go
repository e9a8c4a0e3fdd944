package daemon

import (
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
)

// MLNX_OFED's manager of interfaces counts where it is installed and neither masked
// nor kept from setting modes.
func TestOFEDManager(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		mask  bool
		want  string
	}{
		{name: "OK none"},
		{name: "bad installed", files: map[string]string{"usr/bin/mlnx_interface_mgr.sh": "",
			"etc/infiniband/openib.conf": "SET_IPOIB_CM=auto\n"}, want: "/usr/bin/mlnx_interface_mgr.sh"},
		{name: "OK sets no mode", files: map[string]string{"usr/bin/mlnx_interface_mgr.sh": "",
			"etc/infiniband/openib.conf": "# x\nSET_IPOIB_CM=no\n"}},
		{name: "OK masked", files: map[string]string{"bin/mlnx_interface_mgr.sh": ""}, mask: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for n, text := range tt.files {
				testkit.WriteFile(t, filepath.Join(root, n), text)
			}
			if tt.mask {
				testkit.WriteFile(t, filepath.Join(root, "etc/systemd/system/mlnx_interface_mgr@.service"), "->/dev/null")
			}
			if got := (&Observer{root: root}).ofedManager(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
