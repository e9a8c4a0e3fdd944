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

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/lab/timeline"
	"ibnetworkd/link"
)

// timelineVar set to "1" makes every guest record its ports, links, programs and
// pings, and the host draw them as timeline.svg.  It is off else: the recorder
// reads sysfs fifty times a second, which measurements would see.
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

// record appends one record, if recording is on and it is not the state that the row
// has already, and says whether it did.
func record(r timeline.Record) bool {
	recorder.Lock()
	defer recorder.Unlock()
	if recorder.file == nil {
		return false
	}
	if !r.Mark && !r.Note && r.Trip == 0 {
		if recorder.last[r.Row] == r.Text {
			return false
		}
		recorder.last[r.Row] = r.Text
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	text, err := json.Marshal(r)
	if err != nil {
		return false
	}
	_, err = recorder.file.Write(append(text, '\n'))
	return err == nil
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
		w := &rowWatch{seen: map[string]bool{}, spaces: map[string]*space{}}
		defer w.close()
		var looked time.Time
		for {
			w.look()
			readTails()
			if time.Since(looked) > clockEvery && !c.TimeTravel {
				looked = time.Now()
				if r, err := lookAtClock(); err == nil {
					record(r)
				}
			}
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

// The host's clock is read this often: that of a guest begins up to a second
// late, and an emulated processor's goes at a speed of its own.
const clockEvery = 2 * time.Second

const clockDir = "/out/clock"

// lookAtClock has the host stamp a file, which guest and host both see.  Only the
// host can read the stamp: UML shows a guest whole seconds.
func lookAtClock() (look timeline.Record, err error) {
	if err := os.MkdirAll(shareDir+clockDir, 0o777); err != nil {
		return look, err
	}
	for range 3 {
		before := time.Now()
		f, err := os.CreateTemp(shareDir+clockDir, "look-")
		if err != nil {
			return look, err
		}
		trip := time.Since(before)
		name := f.Name()
		f.Close()
		if look.Text == "" || trip < look.Trip {
			name, look.Text = look.Text, name
			look.At, look.Trip = before.Add(trip/2), trip
		}
		if name != "" {
			_ = os.Remove(name)
		}
	}
	look.Text = filepath.Base(look.Text)
	return look, nil
}

// readLooks adds the host's stamps to the readings of its clock by the guest whose folder
// is dir.
func readLooks(dir string, recs []timeline.Record) {
	for i := range recs {
		if r := &recs[i]; r.Trip > 0 {
			if info, err := os.Stat(filepath.Join(dir, clockDir, filepath.Base(r.Text))); err == nil {
				r.Clock = info.ModTime()
			}
		}
	}
}

// rowWatch reads ports and links.
type rowWatch struct {
	seen   map[string]bool   // rows of the last time
	spaces map[string]*space // by host, "" for the guest's own
}

// space is a network namespace whose links are watched.
type space struct {
	conn *rtnl.Conn
	file os.FileInfo // nil for the guest's own
}

func (w *rowWatch) close() {
	for _, s := range w.spaces {
		s.conn.Close()
	}
}

// look records what has changed.
func (w *rowWatch) look() {
	now := map[string]bool{}
	note := func(row, state string) {
		now[row] = true
		w.seen[row] = true
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
	w.openSpaces()
	devs := rdmaDevices()
	for host, s := range w.spaces {
		links, err := s.conn.Links(false)
		if err != nil {
			s.conn.Close()
			delete(w.spaces, host)
			continue
		}
		if host != "" {
			host += "/"
		}
		for _, l := range rdmaLinks(links, devs) {
			note("link "+host+l.Name, linkState(l))
		}
	}
	for row := range w.seen {
		if !now[row] {
			delete(w.seen, row)
			record(timeline.Record{Row: row})
		}
	}
}

// openSpaces finds the hosts that came and forgets those that went.
func (w *rowWatch) openSpaces() {
	if w.spaces[""] == nil {
		if c, err := rtnl.Dial(); err == nil {
			w.spaces[""] = &space{conn: c}
		}
	}
	names := map[string]os.FileInfo{}
	entries, _ := os.ReadDir(netnsDir)
	for _, e := range entries {
		if info, err := os.Stat(netnsDir + e.Name()); err == nil {
			names[e.Name()] = info
		}
	}
	for host, s := range w.spaces {
		if host != "" && (names[host] == nil || !os.SameFile(names[host], s.file)) {
			s.conn.Close()
			delete(w.spaces, host)
		}
	}
	for host, info := range names {
		if w.spaces[host] != nil {
			continue
		}
		_ = onThread(func() error {
			if err := setns(host); err != nil {
				return err // its namespace is about to be mounted there
			}
			c, err := rtnl.Dial()
			if err == nil {
				w.spaces[host] = &space{conn: c, file: info}
			}
			return err
		})
	}
}

// rdmaDevices are the names of the devices on their buses that are RDMA adapters,
// and of the links that soft RoCE stands on.
func rdmaDevices() map[string]bool {
	devs := map[string]bool{}
	dirs, _ := filepath.Glob("/sys/class/infiniband/*")
	for _, d := range dirs {
		if to, err := os.Readlink(d + "/device"); err == nil {
			devs[filepath.Base(to)] = true
		}
		if text, err := os.ReadFile(d + "/parent"); err == nil {
			devs[strings.TrimSpace(string(text))] = true
		}
	}
	return devs
}

// rdmaLinks are the links of a namespace that concern the fabric, whatever their names
// are: those of type InfiniBand, of an RDMA adapter, and VLANs, macvlans and ipvlans on such a one.
func rdmaLinks(links []rtnl.Link, devs map[string]bool) (out []rtnl.Link) {
	chosen := map[int]bool{}
	for range 4 { // a VLAN on a VLAN, in any order
		out = out[:0]
		for _, l := range links {
			if l.Type == unix.ARPHRD_INFINIBAND || l.ParentDev != "" && devs[l.ParentDev] || devs[l.Name] ||
				link.IsVLAN(l.Kind) && (l.ParentElsewhere || chosen[l.Parent]) {
				chosen[l.Index] = true
				out = append(out, l)
			}
		}
	}
	return out
}

func linkState(l rtnl.Link) string {
	switch {
	case !l.Up():
		return "down"
	case l.Carrier:
		return "carrier"
	}
	return "no carrier"
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

// opRecord reads a line of ibnetworkd's log or journal that reports an operation.
func opRecord(line string) (timeline.Record, bool) {
	_, op, ok := strings.Cut(line, ` op="`)
	if !ok {
		return timeline.Record{}, false
	}
	r := timeline.Record{Mark: true, Bad: !strings.Contains(line, "done op=")}
	if quoted, err := strconv.QuotedPrefix(`"` + op); err == nil {
		r.Text, _ = strconv.Unquote(quoted)
	}
	if _, why, ok := strings.Cut(op, " error="); ok && r.Text != "" {
		if quoted, err := strconv.QuotedPrefix(why); err == nil {
			why, _ = strconv.Unquote(quoted)
		} else {
			why, _, _ = strings.Cut(strings.TrimSpace(why), " ")
		}
		r.Text += ": " + why
	}
	word, _, _ := strings.Cut(line, " ")
	if at, ok := strings.CutPrefix(word, "time="); ok {
		r.At, _ = time.Parse(time.RFC3339, at)
	} else if sec, err := strconv.ParseFloat(word, 64); err == nil {
		r.At = time.UnixMicro(int64(sec * 1e6))
	}
	return r, r.Text != ""
}

// records returns what a guest recorded, by the host's clock, with its name before
// the rows.
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
	recs := timeline.Read(f, prefix)
	readLooks(g.Dir, recs)
	return timeline.Align(recs)
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
