package elect

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
)

// DefaultKey is the SM_Key of managers without a configured one, as in opensm: it
// is no secret.
const DefaultKey = 1

// Trust decides which managers are trusted and which callers are shown the SM_Key.
// Key 0 trusts every manager; above DefaultKey it is a secret.
type Trust struct {
	Key  uint64
	MKey ib.MKey // of the subnet, 0 none
}

// Trusts reports whether a manager with these data may be handed the subnet to,
// and may give orders: it shows the same key. A manager with no key of its own
// trusts every other, one with the default key those that show none.
func (t Trust) Trusts(i mad.SMInfo) bool { return t.Problem(i) == "" }

// Problem returns why a manager is not trusted, "" if it is.
func (t Trust) Problem(i mad.SMInfo) string {
	switch {
	case t.Key == 0, i.SMKey == t.Key, t.Key == DefaultKey && i.SMKey == 0:
		return ""
	case i.SMKey == 0:
		return "shows no SM_Key"
	}
	return "has another SM_Key"
}

// Caller is what is known of the sender of a request.
type Caller struct {
	MKey ib.MKey // in the request
	// Port is the port GUID that its adapter answers with, Info what the manager
	// there answers; zero if it has not been asked.
	Port ib.GUID
	Info mad.SMInfo
	// Proven is that it knows the SM_Key: see Proof.
	Proven bool
	// Known is that a manager that showed the key was at the port.
	Known bool
}

// Answer is whether an answer shows the SM_Key.
type Answer uint8

// The answers.
const (
	Hide Answer = iota
	Show
	AskBack // the sender is to be asked who it is
)

// First decides on a request alone. The SMInfo in a request is no proof: a host
// writes there what it likes. It is a sign not to ask back.
func (t Trust) First(c Caller, payload bool) Answer {
	switch {
	case t.Key <= DefaultKey, t.MKey != 0 && c.MKey == t.MKey:
		return Show
	case t.MKey != 0, payload:
		return Hide
	}
	return AskBack
}

// Asked decides on a sender that was asked back. It must be the manager of the port
// that it sent from, and prove or show the key, or have shown it before.
func (t Trust) Asked(c Caller) Answer {
	switch {
	case t.Key <= DefaultKey:
		return Show
	case c.Port == 0 || c.Info.GUID != c.Port:
		return Hide
	case c.Proven, c.Known, t.Trusts(c.Info):
		return Show
	}
	return Hide
}

// Proof is a manager's answer to a nonce, which proves that it knows the key
// without revealing it: otherwise one of two managers would have to reveal it
// first. The GUIDs are those of the ports of both, which prevents relaying.
func (t Trust) Proof(nonce [16]byte, asker, answerer ib.GUID) (proof [16]byte) {
	return t.code("ibnetsm SMInfo", nonce, uint64(asker), uint64(answerer))
}

// CopyProof is what a question of a standby carries that keeps a copy of the master's
// registrations, of a version, and CopyAnswer the proof of the answer to it.
func (t Trust) CopyProof(nonce [16]byte, asker, answerer ib.GUID, version uint64) [16]byte {
	return t.code("ibnetsm copy", nonce, uint64(asker), uint64(answerer), version)
}

// CopyAnswer is the proof of an answer, with the version and lease that it has.
func (t Trust) CopyAnswer(nonce [16]byte, asker, answerer ib.GUID, c mad.SMInfoCopy) [16]byte {
	return t.code("ibnetsm copied", nonce, uint64(asker), uint64(answerer), c.Version, uint64(c.Lease))
}

func (t Trust) code(what string, nonce [16]byte, of ...uint64) (code [16]byte) {
	m := hmac.New(sha256.New, binary.BigEndian.AppendUint64(nil, t.Key))
	m.Write([]byte(what))
	m.Write(nonce[:])
	for _, v := range of {
		m.Write(binary.BigEndian.AppendUint64(nil, v))
	}
	copy(code[:], m.Sum(nil))
	return code
}

// Hides reports whether the answer to a nonce is a proof of a key that the manager
// has and does not show. One with key 0 hides none; other programs prove nothing,
// some return the nonce.
func (t Trust) Hides(i mad.SMInfo, proof, nonce [16]byte, asker ib.GUID) bool {
	return i.SMKey == 0 && proof != [16]byte{} && proof != nonce && !t.Proves(proof, nonce, asker, i.GUID) &&
		!(Trust{}).Proves(proof, nonce, asker, i.GUID)
}

// Proves reports whether an answer is the proof.
func (t Trust) Proves(proof, nonce [16]byte, asker, answerer ib.GUID) bool {
	want := t.Proof(nonce, asker, answerer)
	return hmac.Equal(proof[:], want[:])
}

// Ordered decides on the answer to a Set of SMInfo.
func (t Trust) Ordered(i mad.SMInfo) Answer {
	if t.Key <= DefaultKey || t.Trusts(i) {
		return Show
	}
	return Hide
}
