package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/serve"
)

// stateFolder is the directory for LIDs and partitions, "" for none.
func (o *options) stateFolder() string {
	dir := cmp.Or(o.stateDir, os.Getenv("STATE_DIRECTORY"))
	if dir == "" && o.transport == "umad" {
		dir = "/var/lib/ibnetsm"
	}
	return dir
}

// store is where the LIDs of the subnet of a port are saved, nil for nowhere.
func (o *options) store(p serve.Port) engine.Store {
	return o.stored("guid2lid", p)
}

// drains is where the drained switches of the subnet of a port are saved.
func (o *options) drains(p serve.Port) engine.Store { return o.stored("drained", p) }

// routes is where the routes of the subnet of a port are saved.
func (o *options) routes(p serve.Port) engine.Store { return o.stored("routes", p) }

func (o *options) stored(what string, p serve.Port) engine.Store {
	dir := o.stateFolder()
	if dir == "" {
		return nil
	}
	return fileStore(filepath.Join(dir, fmt.Sprintf("%s-%016x", what, uint64(p.GUID))))
}

// fileStore is the name of a file that is replaced as a whole.
type fileStore string

func (f fileStore) Load() ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

func (f fileStore) Save(b []byte) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(string(f), b, 0o644)
}
