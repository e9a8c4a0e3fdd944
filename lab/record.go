package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	file  *os.File
	last  map[string]string
	tails map[string]*tail // logs of programs that tell what they do
}

// tail is a log that is read while it grows.
type tail struct {
	row string
	at  int64
}

// tell lets the recorder read the log of a program of this project.
func tell(program, log, prefix string) {
	recorder.Lock()
	defer recorder.Unlock()
	if recorder.file != nil && program == "ibnetworkd" {
		recorder.tails[log] = &tail{row: prefix + "ops"}
	}
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
	if r.At.IsZero() {
		r.At = time.Now()
	}
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

// startRecorder begins to record ports, IPoIB links, subnet managers and what
// ibnetworkd does, until the returned function is called.
func startRecorder(c Config) func() {
	if os.Getenv(timelineVar) != "1" {
		return func() {}
	}
	f, err := os.OpenFile(shareDir+recordFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return func() {}
	}
	recorder.Lock()
	recorder.file, recorder.last, recorder.tails = f, map[string]string{}, map[string]*tail{}
	recorder.Unlock()
	if c.Userland == Systemd {
		const log = "/run/lab-journal"
		if out, err := os.Create(log); err == nil {
			cmd := exec.Command("journalctl", "-f", "-n", "all", "-o", "short-unix", "-u", "ibnetworkd.service")
			cmd.Stdout = out
			if cmd.Start() == nil {
				defer func() { go func() { _ = cmd.Wait() }() }()
				tell("ibnetworkd", log, "")
			}
			out.Close()
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		seen := map[string]bool{}
		for {
			watch(seen)
			readTails()
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
			if role := smRole(filepath.Dir(f), state); role != "" {
				note("sm "+p[4]+"/"+p[6], role)
			}
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

// smRole is what the subnet manager on a port is, whichever it is: the port has
// the IsSM bit while one runs, and knows where the master is.  "" for none.
func smRole(port, state string) string {
	word := func(name string) uint64 {
		text, _ := os.ReadFile(filepath.Join(port, name))
		n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 64)
		return n
	}
	const isSM = 1 << 1
	if word("cap_mask")&isSM == 0 {
		return ""
	}
	switch lid := word("lid"); {
	case lid != 0 && lid == word("sm_lid"):
		return "MASTER"
	case state == "ACTIVE":
		return "STANDBY"
	}
	return "DISCOVERING"
}

// SMRole is what the subnet manager on a port is, whichever program it is: "MASTER",
// "STANDBY", "DISCOVERING", or "" if none runs there.
func (g *G) SMRole(dev string, port int) string {
	_, state, _ := strings.Cut(g.PortFile(dev, port, "state"), ": ")
	return smRole(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", dev, port), state)
}

// readTails records what the logs have got since the last time.
func readTails() {
	recorder.Lock()
	tails := maps.Clone(recorder.tails)
	recorder.Unlock()
	for log, t := range tails {
		f, err := os.Open(log)
		if err != nil {
			continue
		}
		text := make([]byte, 64<<10)
		n, _ := f.ReadAt(text, t.at)
		f.Close()
		end := bytes.LastIndexByte(text[:n], '\n') + 1
		t.at += int64(end)
		for l := range bytes.Lines(text[:end]) {
			if r, ok := opRecord(string(l)); ok {
				r.Row = t.row
				record(r)
			}
		}
	}
}

// opRecord reads a line of ibnetworkd's log or journal that tells of an operation.
func opRecord(line string) (timeline.Record, bool) {
	_, op, ok := strings.Cut(line, ` op="`)
	if !ok {
		return timeline.Record{}, false
	}
	r := timeline.Record{Mark: true, Bad: !strings.Contains(line, "done op=")}
	if quoted, err := strconv.QuotedPrefix(`"` + op); err == nil {
		r.Text, _ = strconv.Unquote(quoted)
	}
	word, _, _ := strings.Cut(line, " ")
	if at, ok := strings.CutPrefix(word, "time="); ok {
		r.At, _ = time.Parse(time.RFC3339, at)
	} else if sec, err := strconv.ParseFloat(word, 64); err == nil {
		r.At = time.UnixMicro(int64(sec * 1e6))
	}
	return r, r.Text != ""
}

// records returns what a guest recorded, with its name before the rows.
func (g *Guest) records(name string) []timeline.Record {
	f, err := os.Open(filepath.Join(g.Dir, recordFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	prefix := ""
	if name != "" {
		prefix = name + ": "
	}
	return timeline.Read(f, prefix)
}

// drawTimeline writes timeline.svg of the given guests and more records into dir,
// if the guests recorded.
func drawTimeline(dir, title string, guests map[string]*Guest, more []timeline.Record) {
	var all []timeline.Record
	for name, g := range guests {
		all = append(all, g.records(name)...)
	}
	if len(all) == 0 {
		return
	}
	f, err := os.Create(filepath.Join(dir, "timeline.svg"))
	if err != nil {
		return
	}
	defer f.Close()
	_ = timeline.SVG(f, title, append(all, more...))
}
