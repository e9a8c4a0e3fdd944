package ibsim

import (
	"fmt"
	"io"
	"net"
	"time"
)

// StreamName is the abstract name of the stream socket beside the sockets with a base name. A client
// that has its slot connects to it, writes the slot in host byte order (32 bits), and reads one
// byte, StreamOK; then data packets go both ways without anything between them.
func StreamName(base string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@" + base + ":stream", Net: "unix"}
}

// StreamOK is the simulator's answer to a client that may use the stream.
const StreamOK = 1

// streamBuffer is how many bytes one system call carries at most.
const streamBuffer = 256 * DataLen

// dialStream connects to the stream of a simulator, nil where there is none: the
// reference simulator has only datagrams.
func dialStream(base string, slot uint32) *net.UnixConn {
	c, err := net.DialUnix("unix", nil, StreamName(base))
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var ok [1]byte
	if _, err = c.Write(ne.AppendUint32(nil, slot)); err == nil {
		_, err = io.ReadFull(c, ok[:])
	}
	if err != nil || ok[0] != StreamOK {
		c.Close()
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	return c
}

// ReadStream calls f for each data packet that comes on a stream, and then done
// before it waits for more, until the stream ends.
func ReadStream(c *net.UnixConn, f func(*Data), done func()) error {
	b := make([]byte, streamBuffer)
	have := 0
	var d Data
	for {
		n, err := c.Read(b[have:])
		have += n
		at := 0
		for ; have-at >= DataLen; at += DataLen {
			if d.Decode(b[at:at+DataLen]) == nil {
				f(&d)
			}
		}
		have = copy(b, b[at:have])
		if at > 0 && done != nil {
			done()
		}
		if err != nil {
			return err
		}
	}
}

// StreamWriter collects data packets and writes many at a time.
type StreamWriter struct{ buf []byte }

// Write writes n data packets, which put fills in.
func (w *StreamWriter) Write(c *net.UnixConn, n int, put func(i int, b *[DataLen]byte)) error {
	if w.buf == nil {
		w.buf = make([]byte, streamBuffer)
	}
	for i := 0; i < n; {
		m := 0
		for ; i < n && m+DataLen <= len(w.buf); i, m = i+1, m+DataLen {
			put(i, (*[DataLen]byte)(w.buf[m:]))
		}
		if _, err := c.Write(w.buf[:m]); err != nil {
			return err
		}
	}
	return nil
}

func (t *Transport) readStream() {
	err := ReadStream(t.stream, t.take, nil)
	t.fail(fmt.Errorf("the simulator ended: %w", err))
}

// flushStream sends what is queued, see flush.
func (t *Transport) flushStream() {
	var w StreamWriter
	var todo []Data
	for range t.wake {
		t.out.Lock()
		todo, t.queue = t.queue, todo[:0]
		t.out.Unlock()
		if err := w.Write(t.stream, len(todo), func(i int, b *[DataLen]byte) { todo[i].Put(b) }); err != nil {
			t.fail(err)
			return
		}
	}
}
