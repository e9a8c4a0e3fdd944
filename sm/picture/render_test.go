package picture

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var out = flag.String("pictures", "", "write the pictures of all shapes into this directory, to be looked at")

func TestPictures(t *testing.T) {
	if *out == "" {
		t.Skip("give -pictures DIRECTORY")
	}
	for name, f := range shapes() {
		w, err := os.Create(filepath.Join(*out, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteSVG(w, f); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
