// Package smp is what the stages of the subnet manager and its engine pass to
// each other: one subnet management request and its outcome.
//
// It owns no state and does no I/O. A stage is a Source: the engine pulls
// requests out of it as its window allows and steps the outcomes back in.
package smp

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
)

// Request is one directed-route Get or Set.
type Request struct {
	Method mad.Method // MethodGet or MethodSet
	Attr   mad.AttrID
	Mod    uint32
	Path   []uint8  // output port of each hop; read-only
	Data   [64]byte // attribute of a Set
	Tag    uint64   // the stage's own, comes back in the Reply
	// MKey is the key that the port shows to have where that is not the
	// manager's own: another manager's, from before. 0 is the manager's own.
	MKey ib.MKey
	// ShortTimeout asks for half the time-out and one repeat at most: an answer that
	// is missing does less harm than the wait for it.
	ShortTimeout bool
}

// ExtendedSpeeds is the bit of PortInfo's modifier by which a manager says that
// it knows extended link speeds (SMSupportExtendedSpeeds, IBA vol 1, 14.2.5.6).
// Without it an NDR or XDR port may show and take what older managers understand
// only, and its link does not carry large packets. A node from before there
// was such a bit ignores it or refuses the modifier: then the engine asks once
// more without, and the Reply has the Request without the bit.
const ExtendedSpeeds uint32 = 1 << 31

// Reply is the outcome of a Request.
type Reply struct {
	Request
	Data    [64]byte   // attribute of the answer
	Status  mad.Status // without the direction bit
	Timeout bool       // no answer after all tries
	Lost    bool       // a repeat was answered in time, so that a try before it got lost
}

// OK reports whether the request was answered with success.
func (r *Reply) OK() bool { return !r.Timeout && r.Status == 0 }

// Source gives requests and takes their outcomes.
//
// The caller sends what Next gives as soon as its window allows, calls Step
// once for each request, in any order, and asks Next again after each Step.
// The source is finished when Next gives nothing and no request is under way.
type Source interface {
	// Next gives the next request that can be sent now.
	Next() (Request, bool)
	// Step takes the outcome of a request, which stays the caller's.
	Step(*Reply)
	// Late reports that a request was not answered in time and is being repeated;
	// its outcome still follows in Step.
	Late(tag uint64)
}

// Searcher is a Source that may search long for its next request. Its caller does other
// things between two calls of Search.
type Searcher interface {
	Source
	// Search searches for a part of a millisecond, and reports whether Next gives what it
	// gives at once.
	Search() bool
}

// List is a Source of independent requests, in order.
type List struct {
	Requests []Request
	// Done is called with each outcome; nil counts failures only.
	Done   func(*Reply)
	Failed int // requests without success
	next   int
}

// Next implements Source.
func (l *List) Next() (Request, bool) {
	if l.next == len(l.Requests) {
		return Request{}, false
	}
	r := l.Requests[l.next]
	l.Requests[l.next] = Request{}
	l.next++
	return r, true
}

// Step implements Source.
func (l *List) Step(r *Reply) {
	if !r.OK() {
		l.Failed++
	}
	if l.Done != nil {
		l.Done(r)
	}
}

// Late implements Source.
func (l *List) Late(uint64) {}

// PathTo is the directed route along output ports plus one more hop.
func PathTo(path []uint8, out uint8) []uint8 {
	p := make([]uint8, len(path)+1)
	copy(p, path)
	p[len(path)] = out
	return p
}

// Standing orders subnet managers: the higher priority wins, between equals
// the lower port GUID (IBA vol 1, 14.4.1).
type Standing struct {
	Priority uint8
	GUID     ib.GUID
}

// Better reports whether s outranks o.
func (s Standing) Better(o Standing) bool {
	return s.Priority > o.Priority || s.Priority == o.Priority && s.GUID < o.GUID
}
