package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ibnetworkd/lab/timeline"
)

// timelineVar set to "1" makes every guest record its ports, links, programs and
// pings, and the host draw them as timeline.svg.  It is off else: the recorder
// looks at sysfs fifty times a second, which measurements would see.
const timelineVar = "IBNET_LAB_TIMELINE"

const recordFile = "/out/timeline.jsonl"

var recorder struct {
	sync.Mutex
	file *os.File
	last map[string]string
}

// record appends one record, if recording is on.
func record(r timeline.Record) {
	recorder.Lock()
	defer recorder.Unlock()
	if recorder.file == nil {
		return
	}
	if !r.Mark {
		if recorder.last[r.Row] == r.Text {
			return
		}
		recorder.last[r.Row] = r.Text
	}
	r.At = time.Now()
	text, err := json.Marshal(r)
	if err != nil {
		return
	}
	_, _ = recorder.file.Write(append(text, '\n'))
}

// Mark puts an event into the timeline of the scenario.
func (g *G) Mark(row, format string, args ...any) {
	record(timeline.Record{Row: row, Text: fmt.Sprintf(format, args...), Mark: true})
}

// State sets the state of a row of the timeline from now on; "" ends it.
func (g *G) State(row, state string) { record(timeline.Record{Row: row, Text: state}) }

// startRecorder begins to record ports and IPoIB links until the returned
// function is called.
func startRecorder() func() {
	if os.Getenv(timelineVar) != "1" {
		return func() {}
	}
	f, err := os.OpenFile(shareDir+recordFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return func() {}
	}
	recorder.Lock()
	recorder.file, recorder.last = f, map[string]string{}
	recorder.Unlock()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		seen := map[string]bool{}
		for {
			watch(seen)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		recorder.Lock()
		defer recorder.Unlock()
		recorder.file.Close()
		recorder.file = nil
	}
}

// watch records what has changed in sysfs; seen are the rows of the last time.
func watch(seen map[string]bool) {
	now := map[string]bool{}
	note := func(row, state string) {
		now[row] = true
		seen[row] = true
		record(timeline.Record{Row: row, Text: state})
	}
	files, _ := filepath.Glob("/sys/class/infiniband/*/ports/*/state")
	for _, f := range files {
		p := strings.Split(f, "/")
		if text, err := os.ReadFile(f); err == nil {
			_, state, _ := strings.Cut(strings.TrimSpace(string(text)), ": ")
			note("port "+p[4]+"/"+p[6], state)
		}
	}
	files, _ = filepath.Glob("/sys/class/net/ib*/carrier")
	for _, f := range files {
		state := "no carrier"
		if text, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(text)) == "1" {
			state = "carrier"
		}
		note("link "+strings.Split(f, "/")[4], state)
	}
	for row := range seen {
		if !now[row] {
			delete(seen, row)
			record(timeline.Record{Row: row})
		}
	}
}

// drawTimeline writes timeline.svg of the given guests into dir, if they recorded.
func drawTimeline(dir, title string, guests map[string]*Guest) {
	var all []timeline.Record
	for name, g := range guests {
		f, err := os.Open(filepath.Join(g.Dir, recordFile))
		if err != nil {
			continue
		}
		prefix := ""
		if name != "" {
			prefix = name + ": "
		}
		all = append(all, timeline.Read(f, prefix)...)
		f.Close()
	}
	if len(all) == 0 {
		return
	}
	f, err := os.Create(filepath.Join(dir, "timeline.svg"))
	if err != nil {
		return
	}
	defer f.Close()
	_ = timeline.SVG(f, title, all)
}
