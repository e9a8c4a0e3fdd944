package packet

import (
	"errors"
	"slices"
)

// Event is a packet, or the end of a socket.
type Event struct {
	From    *Listener
	Data    []byte
	Checked bool  // as of Conn.Read
	Err     error // ErrOversized: a packet that was not read; any other is the end
}

// Listener reads a socket until it is closed.
type Listener struct {
	Index int // of the link
	conn  *Conn
	done  chan struct{}
}

// Listen opens a socket, and sends to events what it receives.
func Listen(o Opener, r Request, events chan<- Event) (*Listener, error) {
	conn, err := o.Listen(r)
	if err != nil {
		return nil, err
	}
	l := &Listener{Index: r.Index, conn: conn, done: make(chan struct{})}
	go func() {
		b := make([]byte, MaxPacket)
		for {
			n, checked, err := conn.Read(b)
			e := Event{From: l, Data: slices.Clone(b[:n]), Checked: checked, Err: err}
			select {
			case events <- e:
			case <-l.done:
				return
			}
			if err != nil && !errors.Is(err, ErrOversized) {
				return
			}
		}
	}()
	return l, nil
}

// Close ends the reading, and returns nil so that callers can clear their field. It does nothing
// on nil.
func (l *Listener) Close() *Listener {
	if l != nil {
		close(l.done)
		_ = l.conn.Close()
	}
	return nil
}
