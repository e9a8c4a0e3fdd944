package nl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"ibnetworkd/internal/testkit"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

type attr struct {
	Type uint16
	Data []byte
}

func collect(b []byte) (out []attr, err error) {
	a := ParseAttrs(b)
	for a.Next() {
		out = append(out, attr{a.Type(), a.Bytes()})
	}
	return out, a.Err()
}

// The library's encoder and decoder are the reference.
func TestBuilderAgreesWithTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		w := Build()
		e := netlink.NewAttributeEncoder()
		for range r.IntN(8) {
			typ := uint16(r.IntN(100) + 1)
			switch r.IntN(7) {
			case 0:
				v := uint8(r.Uint32())
				w.Uint8(typ, v)
				e.Uint8(typ, v)
			case 1:
				v := uint16(r.Uint32())
				w.Uint16(typ, v)
				e.Uint16(typ, v)
			case 2:
				v := r.Uint32()
				w.Uint32(typ, v)
				e.Uint32(typ, v)
			case 3:
				v := r.Uint64()
				w.Uint64(typ, v)
				e.Uint64(typ, v)
			case 4:
				s := strings.Repeat("x", r.IntN(20))
				w.String(typ, s)
				e.String(typ, s)
			case 5:
				b := make([]byte, r.IntN(30))
				w.Raw(typ, b)
				e.Bytes(typ, b)
			case 6:
				v := r.Uint32()
				w.Nest(typ|Nested, func(w *Builder) { w.Uint32(1, v).String(2, "in") })
				e.Nested(typ, func(e *netlink.AttributeEncoder) error { e.Uint32(1, v); e.String(2, "in"); return nil })
			}
		}
		got, err := w.Bytes()
		testkit.NoError(t, err)
		want, err := e.Encode()
		testkit.NoError(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("got\n% x\nwant\n% x", got, want)
		}
		d, err := netlink.NewAttributeDecoder(want)
		testkit.NoError(t, err)
		var model []attr
		for d.Next() {
			model = append(model, attr{d.Type(), d.Bytes()})
		}
		ours, err := collect(got)
		testkit.NoError(t, err)
		if len(ours) != len(model) {
			t.Fatalf("%d attributes, want %d", len(ours), len(model))
		}
		for i := range ours {
			if ours[i].Type != model[i].Type || !bytes.Equal(ours[i].Data, model[i].Data) {
				t.Fatalf("attribute %d: %v, want %v", i, ours[i], model[i])
			}
		}
	}
}

func TestBuilderRefusesWhatDoesNotFit(t *testing.T) {
	if _, err := Build().String(1, strings.Repeat("x", 1<<16)).Bytes(); err == nil {
		t.Error("bad: a string of 64 KiB was built")
	}
	if _, err := Build().Nest(1, func(w *Builder) {
		for range 3 {
			w.Raw(1, make([]byte, 30000))
		}
	}).Bytes(); err == nil {
		t.Error("bad: a nest of 90 KB was built")
	}
}

func FuzzAttrs(f *testing.F) {
	b, _ := Build().Uint8(1, 2).String(3, "abc").Nest(4|Nested, func(w *Builder) { w.Uint64(1, 5) }).Bytes()
	f.Add(b)
	f.Add([]byte{3, 0, 1, 0})
	f.Add([]byte{255, 255, 1, 0, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		a := ParseAttrs(b)
		for a.Next() {
			total += 4 + len(a.Bytes())
			_, _, _, _, _, _ = a.Uint8(), a.Uint16(), a.Uint32(), a.Uint64(), a.Index(), a.Text()
			for n := a.Nested(); n.Next(); {
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of attributes out of %d", total, len(b))
		}
	})
}

// fake is a kernel: answer makes the replies to one message.
type fake struct {
	sends   int
	queue   [][]netlink.Message // datagrams
	errs    []error
	answer  func(m netlink.Message) []any // netlink.Message or error
	maxSend int
}

func (f *fake) SendMessages(ms []netlink.Message) ([]netlink.Message, error) {
	f.sends++
	f.maxSend = max(f.maxSend, len(ms))
	for _, m := range ms {
		for _, a := range f.answer(m) {
			switch a := a.(type) {
			case netlink.Message:
				f.queue, f.errs = append(f.queue, []netlink.Message{a}), append(f.errs, nil)
			case error:
				f.queue, f.errs = append(f.queue, nil), append(f.errs, a)
			}
		}
	}
	return ms, nil
}

func (f *fake) ReceiveIter() func(yield func(netlink.Message, error) bool) {
	return func(yield func(netlink.Message, error) bool) {
		if len(f.queue) == 0 {
			yield(netlink.Message{}, errors.New("the kernel has nothing to say"))
			return
		}
		ms, err := f.queue[0], f.errs[0]
		f.queue, f.errs = f.queue[1:], f.errs[1:]
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		for _, m := range ms {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (*fake) Close() error { return nil }

func ack(m netlink.Message) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: netlink.Error, Sequence: m.Header.Sequence}, Data: make([]byte, 4)}
}

func refuse(m netlink.Message, errno syscall.Errno, text string) error {
	return &netlink.OpError{Op: "receive", Err: errno, Message: text, Sequence: m.Header.Sequence}
}

func TestDoAllMatchesBySequence(t *testing.T) {
	stale := netlink.Message{Header: netlink.Header{Sequence: 99999}}
	f := &fake{answer: func(m netlink.Message) []any {
		n := binary.NativeEndian.Uint32(m.Data)
		switch {
		case n%7 == 0:
			return []any{refuse(m, unix.EEXIST, "it is there.")}
		case n%11 == 0:
			return []any{refuse(stale, unix.EPERM, ""), ack(stale), ack(m)}
		}
		return []any{ack(m)}
	}}
	c := NewConn(f)
	var rs []Request
	for i := range 1000 {
		r := Request{What: fmt.Sprintf("thing %d", i), Type: 5, Data: binary.NativeEndian.AppendUint32(nil, uint32(i))}
		if i%13 == 5 {
			r.Err = errors.New("badly built")
		}
		rs = append(rs, r)
	}
	errs := c.DoAll(rs)
	for i, err := range errs {
		switch {
		case i%13 == 5:
			if err == nil || err.Error() != fmt.Sprintf("thing %d: badly built", i) {
				t.Errorf("%d: %v", i, err)
			}
		case i%7 == 0:
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, unix.EEXIST) || err.Error() != fmt.Sprintf("thing %d: file exists (kernel: it is there)", i) {
				t.Errorf("%d: %v", i, err)
			}
		case err != nil:
			t.Errorf("%d: %v", i, err)
		}
	}
	if want := (1000 + pipeline - 1) / pipeline; f.sends != want || f.maxSend > pipeline {
		t.Errorf("%d sends of up to %d messages, want %d of %d", f.sends, f.maxSend, want, pipeline)
	}
}

func TestSendFailureIsEveryonesResult(t *testing.T) {
	f := &fake{answer: func(netlink.Message) []any { return nil }}
	for i, err := range NewConn(f).DoAll([]Request{{What: "a"}, {What: "b"}}) {
		if err == nil || !strings.Contains(err.Error(), "nothing to say") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestTalkAndAsk(t *testing.T) {
	reply := func(m netlink.Message, s string) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: 42, Sequence: m.Header.Sequence}, Data: []byte(s)}
	}
	c := NewConn(&fake{answer: func(m netlink.Message) []any {
		if m.Header.Flags&netlink.Acknowledge == 0 {
			if string(m.Data) == "gone" {
				return []any{refuse(m, unix.ENODEV, "")}
			}
			return []any{reply(m, "re:"+string(m.Data))}
		}
		return []any{reply(m, "one"), reply(m, "two"), ack(m)}
	}})
	var got []string
	testkit.NoError(t, c.Talk(Request{}, func(typ uint16, b []byte) error { got = append(got, string(b)); return nil }))
	errs := c.Ask([]Request{{Data: []byte("a")}, {Data: []byte("gone")}, {Data: []byte("b")}, {Data: []byte("bad")}},
		func(i int, typ uint16, b []byte) error {
			got = append(got, fmt.Sprintf("%d %d %s", i, typ, b))
			if i == 3 {
				return errors.New("cannot read it")
			}
			return nil
		})
	testkit.Diff(t, "", []string{"one", "two", "0 42 re:a", "2 42 re:b", "3 42 re:bad"}, got)
	if errs[0] != nil || !errors.Is(errs[1], unix.ENODEV) || errs[2] != nil || errs[3] == nil {
		t.Errorf("results %v", errs)
	}
}

func TestDumpBeginsAnewWhenInterrupted(t *testing.T) {
	try := 0
	c := NewConn(&fake{answer: func(m netlink.Message) []any {
		try++
		h := netlink.Header{Type: 16, Sequence: m.Header.Sequence}
		if try == 1 {
			h.Flags = netlink.DumpInterrupted
		}
		return []any{netlink.Message{Header: h, Data: []byte{byte(try)}}}
	}})
	var got []byte
	err := c.Dump(Request{What: "list"}, func() { got = nil }, func(_ uint16, b []byte) error { got = append(got, b...); return nil })
	if err != nil || !bytes.Equal(got, []byte{2}) {
		t.Errorf("got %v, %v; want the second try alone", got, err)
	}
	if err := c.Dump(Request{What: "list"}, func() {}, func(uint16, []byte) error { return errors.New("no sense") }); err == nil ||
		err.Error() != "list: no sense" {
		t.Errorf("got %v", err)
	}
}

// A queue against a naive one: a slice of all events without repetition since
// the last take.
