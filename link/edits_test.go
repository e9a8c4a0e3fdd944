package link

import (
	"strings"
	"testing"
)

// Edits that wait are named; without one there is nothing to say.
func TestEditsNotices(t *testing.T) {
	if n := EditsNotices(nil); len(n) != 0 {
		t.Errorf("without an edit: %+v", n)
	}
	if n := EditsNotices([]string{"/a", "/b", "/c", "/d", "/e", "/f"}); len(n) != 1 || !strings.HasSuffix(n[0].Text, "/e and 1 more") {
		t.Errorf("%+v", n)
	}
}
