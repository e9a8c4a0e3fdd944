package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"

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
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch other network managers: %w", err)
	}
	defer func() { _ = fw.Close() }()
	b := &beside{root: filepath.Join("/", root), fw: fw, was: map[string]bool{}}
	b.add()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-fw.Events:
			if !ok {
				return errors.New("the watch of other network managers has ended")
			}
			switch i := b.changed(e); {
			case i > 0:
				wake(Scope{Links: map[int]bool{i: true}})
			case i < 0:
				wake(Scope{All: true})
			}
		case _, ok := <-fw.Errors:
			if !ok {
				return errors.New("the watch of other network managers has ended")
			}
			clear(b.was)
			b.add()
			wake(Scope{All: true})
		}
	}
}

type beside struct {
	root string
	fw   *fsnotify.Watcher
	was  map[string]bool // by file: managed
}

// add watches the directories, or the nearest parents of those that are not
// there yet.
func (b *beside) add() {
	for _, d := range []string{networkdLinks, nmDevices} {
		for p := filepath.Join(b.root, d); p != "/" && p != b.root; p = filepath.Dir(p) {
			if err := b.fw.Add(p); !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
	}
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
		// A parent: one of the directories may have come, and with files in it.
		for _, d := range []string{networkdLinks, nmDevices} {
			if p := filepath.Join(b.root, d); e.Has(fsnotify.Create) && (p == e.Name || strings.HasPrefix(p, e.Name+"/")) {
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
