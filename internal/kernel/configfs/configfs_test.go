package configfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
)

// In a plain tree the attributes are there before the directory is made, which
// is what configfs does in one step.
func plain(t *testing.T) (FS, string) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/kernel/config/rdma_cm/mlx5_0/ports/1")
	for name, text := range map[string]string{"default_roce_mode": "RoCE v2\n", "default_roce_tos": "106\n"} {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	return New(root), dir
}

func TestDefaults(t *testing.T) {
	f, dir := plain(t)
	d, err := f.Get("mlx5_0", 1)
	if err != nil || d != (Defaults{RoCEv2, 106}) {
		t.Errorf("%+v, %v", d, err)
	}
	testkit.NoError(t, f.SetToS("mlx5_0", 1, 104))
	if b, _ := os.ReadFile(filepath.Join(dir, "default_roce_tos")); string(b[:3]) != "104" {
		t.Errorf("wrote %q", b)
	}
	if err := f.SetRoCEMode("mlx5_0", 1, "RoCE v3"); err == nil {
		t.Error("bad mode: no error")
	}
	if _, err := f.Get("../mlx5_0", 1); err == nil {
		t.Error("bad name: no error")
	}
	testkit.WriteFile(t, filepath.Join(dir, "default_roce_tos"), "many\n")
	if _, err := f.Get("mlx5_0", 1); err == nil {
		t.Error("bad type of service: no error")
	}
}

func TestUnavailable(t *testing.T) {
	f := New(t.TempDir())
	if f.Available() {
		t.Error("available in an empty tree")
	}
	if _, err := f.Get("mlx5_0", 1); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// Another program's directory may go while it is read.
func TestDirectoryGoes(t *testing.T) {
	f, dir := plain(t)
	n := 0
	err := f.with("mlx5_0", 1, func(string) error {
		if n++; n == 1 {
			testkit.NoError(t, os.RemoveAll(filepath.Dir(filepath.Dir(dir))))
			return os.ErrNotExist
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d times, %v", n, err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(dir))); err == nil {
		t.Error("the directory that was made for it stays")
	}
	// A port that is not there stays so.
	f, _ = plain(t)
	if _, err := f.Get("mlx5_0", 2); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a port that is not there: %v", err)
	}
}
