package daemon

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"ibnetworkd/internal/smallfile"
)

// Handed is what another service of the host was given for leases, or may have been given. A file
// has it, so that it is taken back after a restart of the daemon. It belongs to one goroutine.
type Handed struct {
	log   *slog.Logger
	file  string // one item a line
	items []string
}

// HandedSettle is the time after a start in which leases of before are in use again.
const HandedSettle = 30 * time.Second

// OpenHanded reads what a file has of an earlier process; a file that cannot be read has nothing.
func OpenHanded(log *slog.Logger, file string) *Handed {
	b, _ := os.ReadFile(file)
	return &Handed{log, file, strings.Fields(string(b))}
}

// Items are what may have been given.
func (h *Handed) Items() []string { return h.items }

// Add records what is about to be given beside what the service may have. Call it first.
func (h *Handed) Add(items []string) {
	all := slices.Clone(h.items)
	for _, x := range items {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	h.Set(all)
}

// Set records what the service has.
func (h *Handed) Set(items []string) {
	if slices.Equal(items, h.items) {
		return
	}
	h.items = items
	text := ""
	for _, x := range items {
		text += x + "\n"
	}
	if err := smallfile.Keep(h.file, text); err != nil {
		h.log.Warn("what leases set is not recorded, and stays if the daemon restarts", "file", h.file, "error", err)
	}
}
