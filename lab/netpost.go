package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Post sends a value to all nodes; Await in a guest or on the host reads it.
func (r *NetRun) Post(key, value string) {
	r.t.Helper()
	if err := post(r.dir, "key-"+key, value); err != nil {
		r.t.Fatal(err)
	}
}

// Await waits until a node has posted key and returns its value.  The test fails
// when a node has failed in the meantime, or after limit.
func (r *NetRun) Await(key string, limit time.Duration) string {
	r.t.Helper()
	v, why := await(r.dir, key, limit, r.broken)
	if why != "" {
		r.t.Fatalf("lab: %s", why)
	}
	return v
}

// broken names a node that cannot do its part any more, and says why; "" if all can.
func (r *NetRun) broken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name := firstFailed(r.dir); r.guests[name] != nil {
		return fmt.Sprintf("node %s has failed: %s", name, r.guests[name].complaint())
	}
	for _, n := range r.net.Nodes {
		g := r.guests[n.Name]
		if g == nil || r.killed[n.Name] || !g.ended() {
			continue
		}
		if exit, _ := os.ReadFile(filepath.Join(g.Dir, "out/exit")); string(exit) == "0" {
			return "all bodies have ended"
		}
		return fmt.Sprintf("node %s has ended: %s", n.Name, g.complaint())
	}
	return ""
}

// Posted returns the last value that was posted under a key, "" if there is none.
func (r *NetRun) Posted(key string) string {
	text, _ := os.ReadFile(filepath.Join(r.dir, "key-"+key))
	return string(text)
}

// Posted is NetRun.Posted in a guest.
func (g *G) Posted(key string) string {
	text, _ := os.ReadFile(filepath.Join(netDir, "key-"+key))
	return string(text)
}

// Post sends a value to all nodes of the Net and the host.
func (g *G) Post(key, value string) {
	g.Helper()
	if err := post(netDir, "key-"+key, value); err != nil {
		g.Fatal(err)
	}
}

// Await waits until a node or the host has posted key and returns its value.
func (g *G) Await(key string, limit time.Duration) string {
	g.Helper()
	v, why := await(netDir, key, limit, func() string {
		if name := firstFailed(netDir); name != "" {
			return "node " + name + " has failed"
		}
		return ""
	})
	if why != "" {
		g.Fatal(why)
	}
	return v
}

// Node returns the name of the node that this guest is, "" outside of a Net.
func (g *G) Node() string { return os.Getenv(nodeVar) }

func post(dir, name, value string) error {
	tmp := filepath.Join(dir, ".tmp-"+strconv.Itoa(os.Getpid())+"-"+name+os.Getenv(nodeVar))
	if err := os.WriteFile(tmp, []byte(value), 0o666); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}

// failedPrefix begins the name of the file that says that a node has failed.
const failedPrefix = "failed@"

// firstFailed names the node that failed first, "" if none has: others may have failed
// for having waited for it.
func firstFailed(dir string) (name string) {
	files, _ := filepath.Glob(filepath.Join(dir, failedPrefix+"*"))
	var first time.Time
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && (name == "" || info.ModTime().Before(first)) {
			name, first = strings.TrimPrefix(filepath.Base(f), failedPrefix), info.ModTime()
		}
	}
	return name
}

// posted lists the keys that there are.
func posted(dir string) string {
	const most = 20
	files, _ := filepath.Glob(filepath.Join(dir, "key-*"))
	if len(files) == 0 {
		return "none"
	}
	keys := make([]string, 0, most+1)
	for i, f := range files {
		if i == most {
			keys = append(keys, fmt.Sprintf("and %d more", len(files)-most))
			break
		}
		keys = append(keys, strconv.Quote(strings.TrimPrefix(filepath.Base(f), "key-")))
	}
	return strings.Join(keys, ", ")
}

// await waits for a key, and says why it has given that up: after limit, or for what
// broken says.
func await(dir, key string, limit time.Duration, broken func() string) (value, why string) {
	end := time.Now().Add(patient(limit))
	for ; ; time.Sleep(20 * time.Millisecond) {
		why := broken()
		text, err := os.ReadFile(filepath.Join(dir, "key-"+key))
		switch {
		case err == nil:
			return string(text), ""
		case why != "":
			return "", fmt.Sprintf("no node posted %q, and %s", key, why)
		case time.Now().After(end):
			return "", fmt.Sprintf("no node posted %q within %v; posted are: %s", key, patient(limit), posted(dir))
		}
	}
}

// watchDone lets the guests go when all bodies have ended.
func (r *NetRun) watchDone(stop chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		left := 0
		r.mu.Lock()
		for _, n := range r.net.Nodes {
			if n.Switch > 0 || r.killed[n.Name] {
				continue
			}
			g := r.guests[n.Name]
			if g == nil {
				left++
				continue
			}
			ended := g.ended()
			if fileExists(filepath.Join(g.Dir, "out/body-done")) {
				continue
			}
			if !ended {
				left++
			} else if !Sanitizing() {
				_ = post(r.dir, failedPrefix+n.Name, "") // who waits for it need not
			}
		}
		r.mu.Unlock()
		if left == 0 {
			_ = post(r.dir, "all-done", "")
			return
		}
	}
}
