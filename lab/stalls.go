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
	// A guest that was not let run for so long is worth a word where a test fails.
	stallLeast = time.Second
	stallTick  = 100 * time.Millisecond
)

// startStalls begins to write down when the guest stood still: on a busy machine a guest
// may not run for seconds, and who waits for it cannot tell that from a fault of it.
func (j *job) startStalls() {
	if j.TimeTravel {
		return
	}
	go func() {
		for {
			began := time.Now()
			time.Sleep(stallTick)
			if d := time.Since(began) - stallTick; d > stallLeast {
				writeStall(began, d)
			}
		}
	}()
}

func writeStall(at time.Time, d time.Duration) {
	f, err := os.OpenFile(shareDir+stallsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	fmt.Fprintf(f, "%v from %s\n", d.Round(10*time.Millisecond), at.Format("15:04:05.000"))
	f.Close()
}

// stalls says when a guest stood still, "" if it did not.
func (g *Guest) stalls() string {
	text, _ := os.ReadFile(filepath.Join(g.Dir, stallsFile))
	if len(text) == 0 {
		return ""
	}
	return ", stood still for " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
}
