package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/picture"
)

// Listen makes the socket for Serve. A stale socket file is replaced.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("%s: another ibnetsm is serving it", path)
	}
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o660)
}

// Serve answers on the socket until ctx ends.
func (m *Manager) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go m.answer(c)
	}
}

func (m *Manager) answer(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(io.LimitReader(c, control.MaxAsk)).ReadString('\n')
	if err != nil {
		return
	}
	w := bufio.NewWriter(c)
	defer w.Flush()
	subs := m.Subnets()
	what, port := strings.TrimSpace(line), ""
	word, arg, _ := strings.Cut(what, " ")
	switch word {
	case control.AskTopology, control.AskPicture, control.AskRouting:
		what, port = word, arg
	case control.AskDrain, control.AskUndrain:
		what = word
	}
	fabrics := func(yield func(*fabric.Fabric) bool) {
		for _, s := range subs {
			if x := s.Snapshot(); x != nil && x.Fabric != nil && (port == "" || port == fmt.Sprintf("%s/%d", x.Device, x.Port)) && !yield(x.Fabric) {
				return
			}
		}
	}
	switch what {
	case control.AskStatus:
		out := make([]*engine.Snapshot, 0, len(subs))
		for _, s := range subs {
			if x := s.Refresh(); x != nil {
				out = append(out, x)
			}
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(out)
	case control.AskRouting:
		out := make([]control.Routing, 0, len(subs))
		for _, s := range subs {
			if x := s.Refresh(); x != nil && x.PortGUID.String() == port {
				out = append(out, x.Routes)
			}
		}
		_ = json.NewEncoder(w).Encode(out)
	case control.AskTopology:
		for f := range fabrics {
			fabric.WriteText(w, f)
		}
	case control.AskPicture:
		for f := range fabrics {
			picture.WriteSVG(w, f)
			return
		}
	case control.AskMetrics:
		for _, s := range subs {
			if x := s.Refresh(); x != nil {
				x.WriteMetrics(w)
			}
		}
	case control.AskResweep:
		m.Resweep(false, "asked for")
		fmt.Fprintln(w, "ok")
	case control.AskFull:
		m.Resweep(true, "asked for")
		fmt.Fprintln(w, "ok")
	case control.AskDrain, control.AskUndrain:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(m.drain(subs, what == control.AskDrain, arg))
	default:
		fmt.Fprintf(w, "unknown request %q\n", what)
	}
}
