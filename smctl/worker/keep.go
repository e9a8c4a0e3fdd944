package worker

import (
	"fmt"
	"ibnetworkd/internal/smallfile"
	"os"
	"path/filepath"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/smctl"
)

// Dir keeps options below a directory, one environment file a port: the unit
// reads it (EnvironmentFile=), and so does the next run of the daemon.
type Dir string

func (d Dir) path(g ib.GUID) string { return filepath.Join(string(d), g.String()+".env") }

// Save implements Keeper.
func (d Dir) Save(g ib.GUID, options []string, hand smctl.Hand) error {
	var b strings.Builder
	b.WriteString("# Written by ibnetworkd; the unit file's [SubnetManager] section says what goes in here.\n")
	fmt.Fprintf(&b, "IBNETSM_OPTIONS=\"%s\"\n", strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "").Replace(strings.Join(options, " ")))
	if hand != smctl.HandNone {
		fmt.Fprintf(&b, "IBNETSM_BY_HAND=%s\n", hand)
	}
	if old, err := os.ReadFile(d.path(g)); err == nil && string(old) == b.String() {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	return smallfile.Replace(d.path(g), []byte(b.String()), 0o644)
}

// Hand implements Keeper.
func (d Dir) Hand(g ib.GUID) smctl.Hand {
	b, err := os.ReadFile(d.path(g))
	if err != nil {
		return smctl.HandNone
	}
	for line := range strings.Lines(string(b)) {
		switch strings.TrimSpace(line) {
		case "IBNETSM_BY_HAND=start":
			return smctl.HandStart
		case "IBNETSM_BY_HAND=stop":
			return smctl.HandStop
		}
	}
	return smctl.HandNone
}
