package picture

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"ibnetworkd/internal/testkit"
)

var out = flag.String("pictures", "", "write the pictures of all shapes into this directory, to be looked at")

func TestPictures(t *testing.T) {
	if *out == "" {
		t.Skip("give -pictures DIRECTORY")
	}
	for name, f := range shapes() {
		w, err := os.Create(filepath.Join(*out, name+".svg"))
		testkit.NoError(t, err)
		testkit.NoError(t, WriteSVG(w, f))
		testkit.NoError(t, w.Close())
	}
}
