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

	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// DefaultSocket is where a running ibnetsm answers.
const DefaultSocket = "/run/ibnetsm/ibnetsm.sock"

// What can be asked for over the socket, one word and a line feed.
const (
	AskStatus   = "status"   // JSON: a list of engine.Snapshot
	AskTopology = "topology" // the subnets in ibnetdiscover's form
	AskPicture  = "picture"  // the first subnet as SVG
	AskMetrics  = "metrics"  // counters in Prometheus' text form
	AskResweep  = "resweep"
	AskFull     = "resweep full"
)

// Listen makes the socket for Serve. A socket file that nobody serves is
// replaced.
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

// maxAsk bounds what a client may send.
const maxAsk = 64

func (m *Manager) answer(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(io.LimitReader(c, maxAsk)).ReadString('\n')
	if err != nil {
		return
	}
	w := bufio.NewWriter(c)
	defer w.Flush()
	subs := m.Subnets()
	switch strings.TrimSpace(line) {
	case AskStatus:
		out := make([]*engine.Snapshot, 0, len(subs))
		for _, s := range subs {
			if x := s.Refresh(); x != nil {
				out = append(out, x)
			}
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(out)
	case AskTopology:
		for _, s := range subs {
			if x := s.Snapshot(); x != nil && x.Fabric != nil {
				fabric.WriteText(w, x.Fabric)
			}
		}
	case AskPicture:
		for _, s := range subs {
			if x := s.Snapshot(); x != nil && x.Fabric != nil {
				fabric.WriteSVG(w, x.Fabric)
				return
			}
		}
	case AskMetrics:
		for _, s := range subs {
			if x := s.Refresh(); x != nil {
				x.WriteMetrics(w)
			}
		}
	case AskResweep:
		m.Resweep(false, "asked for")
		fmt.Fprintln(w, "ok")
	case AskFull:
		m.Resweep(true, "asked for")
		fmt.Fprintln(w, "ok")
	default:
		fmt.Fprintf(w, "unknown request %q\n", strings.TrimSpace(line))
	}
}

// Ask sends a request to a running ibnetsm and copies the answer.
func Ask(ctx context.Context, path, what string, w io.Writer) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("no ibnetsm answers at %s: %w", path, err)
	}
	defer c.Close()
	if dl, ok := ctx.Deadline(); ok {
		c.SetDeadline(dl)
	}
	if _, err := fmt.Fprintln(c, what); err != nil {
		return err
	}
	_, err = io.Copy(w, c)
	return err
}
