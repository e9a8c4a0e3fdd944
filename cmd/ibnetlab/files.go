package main

import (
	"fmt"
	"os"
	"strings"
)

const largestFile = 16 << 20 // bytes: files lie in the guest's memory

// guestFiles reads the files of --file, by their names in the guest.
func guestFiles(args []string) (map[string]string, error) {
	files := map[string]string{}
	for _, arg := range args {
		guest, local, ok := strings.Cut(arg, "=")
		if !ok || guest == "" || local == "" {
			return nil, fmt.Errorf("--file %q: want GUESTPATH=LOCALFILE", arg)
		}
		if _, ok := files[guest]; ok {
			return nil, fmt.Errorf("--file %s: given twice", guest)
		}
		st, err := os.Stat(local)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--file %s: %w", guest, err)
		case !st.Mode().IsRegular():
			return nil, fmt.Errorf("--file %s: %s is not a regular file", guest, local)
		case st.Size() > largestFile:
			return nil, fmt.Errorf("--file %s: %s is too large (%d bytes, at most %d)", guest, local, st.Size(), largestFile)
		}
		text, err := os.ReadFile(local)
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", guest, err)
		}
		files[guest] = string(text)
	}
	return files, nil
}
