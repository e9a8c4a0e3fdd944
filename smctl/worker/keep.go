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

// Kept is what is remembered of a port's worker until the host is booted anew.
type Kept struct {
	// Engine is the program that was started last, and Options the line that
	// it was started with (see commandLine), or would have been when a person
	// asked for something before the first start; empty before both.
	Engine  smctl.Engine
	Options string
	// Hand is what a person asked for.
	Hand smctl.Hand
}

// commandLine joins options so that systemd splits them again where it replaces
// $IBNETSM_OPTIONS: at white space, with double quotes and backslashes as in
// systemd.service(5).
func commandLine(options []string) string {
	quoted := make([]string, len(options))
	for i, o := range options {
		if strings.ContainsAny(o, " \t\"'\\") {
			o = `"` + escaper.Replace(o) + `"`
		}
		quoted[i] = o
	}
	return strings.Join(quoted, " ")
}

var (
	escaper   = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
)

// Dir keeps below a directory, one environment file a port: the unit reads it
// (EnvironmentFile=), and so does the next run of the daemon.
type Dir string

func (d Dir) path(g ib.GUID) string { return filepath.Join(string(d), g.String()+".env") }

const (
	optionsKey = "IBNETSM_OPTIONS="
	engineKey  = "IBNETSM_ENGINE="
	handKey    = "IBNETSM_BY_HAND="
)

// Save implements Keeper.
func (d Dir) Save(g ib.GUID, k Kept) error {
	var b strings.Builder
	b.WriteString("# Written by ibnetworkd; the unit file's [SubnetManager] section says what goes in here.\n")
	fmt.Fprintf(&b, "%s\"%s\"\n", optionsKey, escaper.Replace(k.Options))
	if k.Engine != smctl.EngineBuiltin {
		fmt.Fprintf(&b, "%s%v\n", engineKey, k.Engine)
	}
	if k.Hand != smctl.HandNone {
		fmt.Fprintf(&b, "%s%v\n", handKey, k.Hand)
	}
	if old, err := os.ReadFile(d.path(g)); err == nil && string(old) == b.String() {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	return smallfile.Replace(d.path(g), []byte(b.String()), 0o644)
}

// Load implements Keeper.
func (d Dir) Load(g ib.GUID) (k Kept) {
	b, err := os.ReadFile(d.path(g))
	if err != nil {
		return Kept{}
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, optionsKey); ok && len(v) >= 2 {
			k.Options = unescaper.Replace(v[1 : len(v)-1])
		}
		if v, ok := strings.CutPrefix(line, engineKey); ok {
			k.Engine, _ = smctl.ParseEngine(v)
		}
		switch line {
		case handKey + "start":
			k.Hand = smctl.HandStart
		case handKey + "stop":
			k.Hand = smctl.HandStop
		}
	}
	return k
}
