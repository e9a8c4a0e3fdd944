package main

import (
	"maps"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
)

// Files are read by their names in the guest; a name on this machine may have a =.
func TestGuestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "a=b")
	testkit.WriteFile(t, one, "first")
	testkit.WriteFile(t, two, "second")
	got, err := guestFiles([]string{"/etc/one=" + one, "/etc/two=" + two})
	if want := map[string]string{"/etc/one": "first", "/etc/two": "second"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := guestFiles(nil); err != nil || len(got) != 0 {
		t.Errorf("without files: %v, %v", got, err)
	}
}
