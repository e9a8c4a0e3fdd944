package dhcp6

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ibnetworkd/link/dhcp"
)

// Message types (RFC 8415, section 7.3).
const (
	typeSolicit     = 1
	typeAdvertise   = 2
	typeRequest     = 3
	typeConfirm     = 4
	typeRenew       = 5
	typeRebind      = 6
	typeReply       = 7
	typeRelease     = 8
	typeDecline     = 9
	typeInformation = 11
)

// Options (RFC 8415, section 21, and those of name service and time).
const (
	optClientID    = 1
	optServerID    = 2
	optIANA        = 3
	optIAAddr      = 5
	optRequest     = 6
	optPreference  = 7
	optElapsed     = 8
	optStatus      = 13
	optRapidCommit = 14
	optDNS         = 23
	optDomains     = 24
	optSNTP        = 31
	optRefresh     = 32
	optFQDN        = 39
	optNTP         = 56
	optSolMaxRT    = 82
	optInfMaxRT    = 83

	ntpServer = 1 // in optNTP
	header    = 4
	longestID = 130 // of a DUID with its type
)

// status is a status code (RFC 8415, section 21.13).
type status uint16

const (
	statusSuccess status = iota
	statusUnspecFail
	statusNoAddrs
	statusNoBinding
	statusNotOnLink
	statusUseMulticast
)

// String is the name in RFC 8415.
func (s status) String() string {
	names := []string{"Success", "UnspecFail", "NoAddrsAvail", "NoBinding", "NotOnLink", "UseMulticast"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown status" // one word for all: a server may send any
}

// options are in the order of a message.
type options []option

type option struct {
	code  uint16
	value []byte
}

// message is a message between a client and a server.
type message struct {
	kind byte
	xid  uint32 // 24 bits
	opts options
}

var errShort = errors.New("not a DHCPv6 message")

func decode(b []byte) (*message, error) {
	if len(b) > dhcp.MaxMessage {
		return nil, fmt.Errorf("message has %d bytes, at most %d are read", len(b), dhcp.MaxMessage)
	}
	if len(b) < header {
		return nil, errShort
	}
	m := &message{kind: b[0], xid: binary.BigEndian.Uint32(b) & 0xffffff}
	var err error
	m.opts, err = decodeOptions(b[header:])
	return m, err
}

// alone are the options that come once at most where they come.
var alone = []uint16{optClientID, optServerID, optPreference, optStatus, optRapidCommit, optDNS, optDomains, optSNTP, optRefresh,
	optSolMaxRT, optInfMaxRT}

// decodeOptions reads options; one that has to be alone is an error if it comes twice.
func decodeOptions(b []byte) (options, error) {
	out, err := splitOptions(b)
	for i, o := range out {
		if slices.Contains(alone, o.code) && out[:i].has(o.code) {
			return nil, fmt.Errorf("option %d is duplicate", o.code)
		}
	}
	return out, err
}

// splitOptions reads options, or suboptions, each of which may come more than once.
func splitOptions(b []byte) (out options, err error) {
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, errors.New("an option is truncated")
		}
		o := option{code: binary.BigEndian.Uint16(b)}
		n := int(binary.BigEndian.Uint16(b[2:]))
		if b = b[4:]; n > len(b) {
			return nil, fmt.Errorf("option %d is truncated", o.code)
		}
		o.value, b = b[:n:n], b[n:]
		out = append(out, o)
		if len(out) > mostOptions {
			return nil, fmt.Errorf("more than %d options", mostOptions)
		}
	}
	return out, nil
}

// mostOptions bounds the options of a message, and of an option.
const mostOptions = 128

func (o options) has(code uint16) bool {
	return slices.ContainsFunc(o, func(x option) bool { return x.code == code })
}

// get is the value of an option, nil for none.
func (o options) get(code uint16) []byte {
	for _, x := range o {
		if x.code == code {
			return x.value
		}
	}
	return nil
}

// seconds is an option of 32 bits.
func (o options) seconds(code uint16) (uint32, bool) {
	if v := o.get(code); len(v) == 4 {
		return binary.BigEndian.Uint32(v), true
	}
	return 0, false
}

// status is Success where there is no status.
func (o options) status() (status, error) {
	v := o.get(optStatus)
	switch {
	case !o.has(optStatus):
		return statusSuccess, nil
	case len(v) < 2:
		return 0, errors.New("a status of less than 2 bytes")
	}
	return status(binary.BigEndian.Uint16(v)), nil
}

func (m *message) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(m.kind)<<24|m.xid)
	return m.opts.append(b)
}

func (o options) append(b []byte) []byte {
	for _, x := range o {
		b = binary.BigEndian.AppendUint16(b, x.code)
		b = binary.BigEndian.AppendUint16(b, uint16(len(x.value)))
		b = append(b, x.value...)
	}
	return b
}
