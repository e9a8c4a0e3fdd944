package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"

	"ibnetworkd/internal/filewatch"
	"ibnetworkd/internal/smallfile"
)

// The directories in which systemd-networkd and NetworkManager say which links
// they manage, in a file for each with the link's index for a name.
const (
	networkdLinks = "/run/systemd/netif/links"
	nmDevices     = "/run/NetworkManager/devices"
)

// networkdManages reads systemd-networkd's file of a link.
func networkdManages(text string) bool {
	admin, file := "", ""
	for line := range strings.Lines(text) {
		switch k, v, _ := strings.Cut(strings.TrimSpace(line), "="); k {
		case "ADMIN_STATE":
			admin = v
		case "NETWORK_FILE":
			file = v
		}
	}
	return file != "" && (admin == "configuring" || admin == "configured" || admin == "failed")
}

// nmManages reads NetworkManager's file of a device.
func nmManages(text string) bool {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "managed=true" {
			return true
		}
	}
	return false
}

// Beside wakes the loop for links that systemd-networkd or NetworkManager takes
// or releases it, which the kernel does not report. It returns when ctx ends, or
// with an error if there is nothing to watch with.
func Beside(ctx context.Context, root string, wake func(Scope)) error {
	w, err := filewatch.New(slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("watch other network managers: %w", err)
	}
	b := &beside{root: filepath.Join("/", root), was: map[string]bool{}}
	b.add = func() { w.Add(filepath.Join(b.root, networkdLinks), filepath.Join(b.root, nmDevices)) }
	b.add()
	w.Run(ctx, func(e fsnotify.Event) bool {
		if e.Name == "" {
			clear(b.was)
			b.add()
			wake(Scope{All: true})
			return false
		}
		switch i := b.changed(e); {
		case i > 0:
			wake(Scope{Links: map[int]bool{i: true}})
		case i < 0:
			wake(Scope{All: true})
		}
		return false
	}, nil)
	return nil
}

type beside struct {
	root string
	add  func()          // watches the directories
	was  map[string]bool // by file: managed
}

// changed is the index of a link whose manager has changed, 0 for none and -1 for
// any: the files are written much more often than that.
func (b *beside) changed(e fsnotify.Event) int {
	dir, name := filepath.Split(e.Name)
	manages := networkdManages
	switch dir = filepath.Clean(dir); dir {
	case filepath.Join(b.root, networkdLinks):
	case filepath.Join(b.root, nmDevices):
		manages = nmManages
	default:
		// One of the directories may have come, with files in it, or have gone, with its watch.
		for _, d := range []string{networkdLinks, nmDevices} {
			if p := filepath.Join(b.root, d); e.Op != fsnotify.Chmod && (p == e.Name || strings.HasPrefix(p, e.Name+"/")) {
				b.add()
				return -1
			}
		}
		return 0
	}
	i, err := strconv.Atoi(name)
	if err != nil || i <= 0 || e.Op == fsnotify.Chmod {
		return 0
	}
	// One that cannot be read says nothing: it is gone, or just about to be.
	text, _ := smallfile.Read(e.Name, maxState)
	now := manages(string(text))
	if was, known := b.was[e.Name]; known && was == now {
		return 0
	}
	if b.was[e.Name] = now; !now {
		if _, err := os.Stat(e.Name); err != nil {
			delete(b.was, e.Name)
		}
	}
	return i
}

// maxState bounds what is read of such a file, in bytes.
const maxState = 64 << 10
