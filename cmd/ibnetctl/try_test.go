package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"ibnetworkd/internal/testkit"
)

// trial makes three files as they are before a trial, changes them, and gives
// the trial's directory and a check that the former ones are back.
func trial(t *testing.T) (dir string, isBack func() bool) {
	t.Helper()
	d := t.TempDir()
	text, link, none := filepath.Join(d, "text"), filepath.Join(d, "link"), filepath.Join(d, "none")
	testkit.NoError(t, os.WriteFile(text, []byte("before"), 0o640))
	testkit.NoError(t, os.Symlink("/dev/null", link))
	var all tried
	for _, p := range []string{text, link, none} {
		f, err := former(p)
		testkit.NoError(t, err)
		all.Files = append(all.Files, f)
		if f.Link != "" {
			os.Remove(p)
		}
		testkit.NoError(t, os.WriteFile(p, []byte("tried"), 0o600))
	}
	b, err := json.Marshal(all)
	testkit.NoError(t, err)
	dir = filepath.Join(d, "try")
	testkit.NoError(t, os.Mkdir(dir, 0o700))
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, triedJSON), b, 0o600))
	return dir, func() bool {
		b, err := os.ReadFile(text)
		st, serr := os.Stat(text)
		to, lerr := os.Readlink(link)
		_, nerr := os.Lstat(none)
		return err == nil && string(b) == "before" && serr == nil && st.Mode().Perm() == 0o640 && lerr == nil && to == "/dev/null" &&
			os.IsNotExist(nerr)
	}
}

func TestSettleOnce(t *testing.T) {
	dir, isBack := trial(t)
	if done, err := settle(dir, false); !done || err != nil || !isBack() {
		t.Errorf("taken back: %v, %v, %v", done, err, isBack())
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the trial's directory is still there")
	}
	if done, err := settle(dir, true); done || err != nil {
		t.Errorf("kept after it was taken back: %v, %v", done, err)
	}
	dir, isBack = trial(t)
	if done, err := settle(dir, true); !done || err != nil || isBack() {
		t.Errorf("kept: %v, %v", done, err)
	}
	if done, err := settle(dir, false); done || err != nil || isBack() {
		t.Errorf("taken back after it was kept: %v, %v", done, err)
	}
}

// A rollback that fails half way is done by the next.
func TestSettleAgain(t *testing.T) {
	dir, isBack := trial(t)
	link := filepath.Join(filepath.Dir(dir), "link")
	// A directory cannot be replaced by a link.
	os.Remove(link)
	testkit.NoError(t, os.MkdirAll(filepath.Join(link, "x"), 0o755))
	if done, err := settle(dir, false); done || err == nil {
		t.Fatalf("%v, %v", done, err)
	}
	testkit.NoError(t, os.RemoveAll(link))
	if done, err := settle(dir, false); !done || err != nil || !isBack() {
		t.Errorf("%v, %v, %v", done, err, isBack())
	}
}

// Of the guard and the one at the prompt one settles, and the files are as it
// says.
func TestSettleRace(t *testing.T) {
	for range 50 {
		dir, isBack := trial(t)
		var kept, back atomic.Int32
		var both sync.WaitGroup
		both.Go(func() {
			if done, err := settle(dir, true); err != nil {
				t.Error(err)
			} else if done {
				kept.Add(1)
			}
		})
		both.Go(func() {
			if done, err := settle(dir, false); err != nil {
				t.Error(err)
			} else if done {
				back.Add(1)
			}
		})
		both.Wait()
		if kept.Load()+back.Load() != 1 || isBack() != (back.Load() == 1) {
			t.Fatalf("kept %d, taken back %d, is back %v", kept.Load(), back.Load(), isBack())
		}
	}
}
