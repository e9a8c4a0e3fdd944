package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	stallsFile = "/out/stalls"
	stallTick  = 100 * time.Millisecond
	// stallLeast is how long a guest must not have run to be reported.
	stallLeast = time.Second
)

// startStalls begins to write down when the guest stood still: on a busy machine a guest
// may not run for seconds, and who waits for it cannot tell that from a fault of it.
func (j *job) startStalls() error {
	if j.TimeTravel {
		return nil
	}
	f, err := os.OpenFile(shareDir+stallsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	go func() {
		for {
			began := time.Now()
			time.Sleep(stallTick)
			if d := time.Since(began); d >= stallLeast {
				fmt.Fprintf(f, "%v from %s\n", d.Round(10*time.Millisecond), began.Format("15:04:05.000"))
			}
		}
	}()
	return nil
}

// stalls lists when a guest stood still.
func (g *Guest) stalls() []string {
	text, _ := os.ReadFile(filepath.Join(g.Dir, stallsFile))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
