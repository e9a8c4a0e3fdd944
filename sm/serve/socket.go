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
	"ibnetworkd/sm/picture"
)

// DefaultSocket is where a running ibnetsm answers.
const DefaultSocket = "/run/ibnetsm/ibnetsm.sock"

// What can be asked for over the socket, one line. Topology and picture take a
// port after a space, as mlx5_0/1, and are empty where it is not master.
const (
	AskStatus   = "status"   // JSON: a list of engine.Snapshot
	AskTopology = "topology" // the subnets in ibnetdiscover's form
	AskPicture  = "picture"  // the first subnet as SVG
	AskMetrics  = "metrics"  // counters in Prometheus' text form
	AskResweep  = "resweep"
	AskFull     = "resweep full"
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

// maxAsk bounds what a client may send.
const maxAsk = 128

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
	what, port := strings.TrimSpace(line), ""
	if w, p, ok := strings.Cut(what, " "); ok && (w == AskTopology || w == AskPicture) {
		what, port = w, p
	}
	fabrics := func(yield func(*fabric.Fabric) bool) {
		for _, s := range subs {
			if x := s.Snapshot(); x != nil && x.Fabric != nil && (port == "" || port == fmt.Sprintf("%s/%d", x.Device, x.Port)) && !yield(x.Fabric) {
				return
			}
		}
	}
	switch what {
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
		for f := range fabrics {
			fabric.WriteText(w, f)
		}
	case AskPicture:
		for f := range fabrics {
			picture.WriteSVG(w, f)
			return
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
		fmt.Fprintf(w, "unknown request %q\n", what)
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
	// Not by splice: a reader that has gone, as head, ends the program without a
	// word then, as it does any other.
	_, err = io.Copy(struct{ io.Writer }{w}, c)
	return err
}
