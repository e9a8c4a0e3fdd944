package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/internal/smallfile"
	"ibnetworkd/smctl"
)

// Saved is what is remembered of a port's worker until the next boot.
type Saved struct {
	// Engine is the program that was started last, and Settings what it was
	// given last (smctl.Settings), or would have been when a person asked for
	// something before the first start; empty before both.
	Engine   smctl.Engine
	Settings string
	// Files is the digest of the files that it was given last (smctl.Files).
	Files string
	// Override is the administrator's last request.
	Override smctl.Override
}

// Dir keeps below a directory, one file a port: ibnetsm reads its settings from
// it (ibnetsm run --settings), and the next run of the daemon reads it back.
type Dir string

func (d Dir) path(g ib.GUID) string { return filepath.Join(string(d), g.String()+".conf") }

// What the file has beside settings; ibnetsm skips the section.
const (
	settingsHead = "[SubnetManager]\n"
	stateHead    = "[State]\n"
	engineKey    = "Engine="
	handKey      = "ByHand="
	filesKey     = "Files="
)

// Save implements StateStore.
func (d Dir) Save(g ib.GUID, k Saved) error {
	var b strings.Builder
	b.WriteString("# Written by ibnetworkd from the [SubnetManager] section of the port's unit.\n")
	b.WriteString(settingsHead + k.Settings + stateHead)
	fmt.Fprintf(&b, "%s%v\n", engineKey, k.Engine)
	if k.Files != "" {
		fmt.Fprintf(&b, "%s%s\n", filesKey, k.Files)
	}
	if k.Override != smctl.OverrideNone {
		fmt.Fprintf(&b, "%s%v\n", handKey, k.Override)
	}
	if old, err := os.ReadFile(d.path(g)); err == nil && string(old) == b.String() {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	return smallfile.Replace(d.path(g), []byte(b.String()), 0o644)
}

// maxKept bounds in bytes what is read back: a partition rule for each of a
// thousand groups of hosts fits.
const maxKept = 4 << 20

// Load implements StateStore.
func (d Dir) Load(g ib.GUID) (k Saved) {
	b, err := smallfile.Read(d.path(g), maxKept)
	if err != nil {
		return Saved{}
	}
	state := false
	for line := range strings.Lines(string(b)) {
		switch {
		case line == settingsHead || line == stateHead:
			state = line == stateHead
			continue
		case strings.HasPrefix(line, "#"):
			continue
		case !state:
			k.Settings += line
			continue
		}
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, engineKey); ok {
			k.Engine, _ = smctl.ParseEngine(v)
		}
		if v, ok := strings.CutPrefix(line, filesKey); ok {
			k.Files = v
		}
		switch line {
		case handKey + "start":
			k.Override = smctl.OverrideStart
		case handKey + "stop":
			k.Override = smctl.OverrideStop
		}
	}
	return k
}
