package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/serve"
	"ibnetworkd/smctl"
)

// notifier reports to systemd what the subnet managers do: STATUS= with the state, which
// ibnetworkd reads.
type notifier struct {
	opened chan struct{} // closed when the first port is open

	mu    sync.Mutex
	ports map[serve.Port]smctl.StatusText
	note  string
	last  string
}

func newNotifier() *notifier {
	return &notifier{opened: make(chan struct{}), ports: map[serve.Port]smctl.StatusText{}}
}

// state records the state of a subnet manager, whose port is open then.
func (s *notifier) state(p serve.Port, x *engine.Snapshot) {
	said := smctl.StatusText{Known: true, Nodes: x.Nodes, Others: len(x.Others)}
	if x.Master != nil {
		said.Others++
	}
	switch x.State {
	case mad.SMMaster.String():
		said.State = smctl.SMMaster
	case mad.SMStandby.String():
		said.State = smctl.SMStandby
	case mad.SMDiscovering.String():
		said.State = smctl.SMDiscovering
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[p] = said
	s.send()
	select {
	case <-s.opened:
	default:
		close(s.opened)
	}
}

// gone removes a port that is lost, and its state.
func (s *notifier) gone(p serve.Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ports, p)
	s.send()
}

// problem is what is wrong with the settings, empty for nothing.
func (s *notifier) problem(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = note
	s.send()
}

// send reports to systemd if the text has changed.
func (s *notifier) send() {
	text := s.text()
	if text == "" && s.last != "" {
		text = "no port is open"
	}
	if text == "" || text == s.last {
		return
	}
	s.last = text
	sd.SdNotify(false, "STATUS="+text)
}

func (s *notifier) text() string {
	if len(s.ports) == 1 {
		for _, said := range s.ports {
			said.Note = s.note
			return said.String()
		}
	}
	var parts []string
	for _, p := range slices.SortedFunc(maps.Keys(s.ports), func(a, b serve.Port) int {
		return strings.Compare(fmt.Sprint(a.Device, "/", a.Num), fmt.Sprint(b.Device, "/", b.Num))
	}) {
		parts = append(parts, fmt.Sprintf("%s/%d: %v", p.Device, p.Num, s.ports[p]))
	}
	if s.note != "" {
		parts = append(parts, s.note)
	}
	return strings.Join(parts, "; ")
}
