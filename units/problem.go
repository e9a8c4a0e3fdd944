package units

import (
	"errors"
	"fmt"
)

// Severity is how much a problem loses.
type Severity uint8

// The severities. A Warning loses one assignment or section at most, an Error
// the whole file.
const (
	Warning Severity = iota
	Error
)

// String is the word in messages.
func (s Severity) String() string {
	if s == Error {
		return "error"
	}
	return "warning"
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Problem is one thing wrong in a file.
type Problem struct {
	Pos      Position `json:"position"`
	Severity Severity `json:"severity"`
	// Message is one sentence without a final stop.
	Message string `json:"message"`
	// Kept is what is used instead: "the previous value 2044 is kept", "the file is
	// not used".
	Kept string `json:"kept,omitempty"`
	// Next is what to do, where there is a guess: "did you mean MTUBytes=?".
	Next string `json:"next,omitempty"`
	// Section and Key are the place in the schema, where there is one.
	Section string `json:"section,omitempty"`
	Key     string `json:"key,omitempty"`
}

// String prints the problem as one line: place, severity, sentence, what is kept,
// what to do.
func (p Problem) String() string {
	s := p.Pos.String() + ": " + p.Severity.String() + ": " + p.Message
	if p.Kept != "" {
		s += "; " + p.Kept
	}
	if p.Next != "" {
		s += "; " + p.Next
	}
	return s
}

// guess is an error with what was probably meant, "did you mean auto?".
type guess struct{ msg, next string }

func (g *guess) Error() string { return g.msg + "; " + g.next }

// didYouMean is an error text with a guess, which may be empty.
func didYouMean(hint, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if hint == "" {
		return errors.New(msg)
	}
	return &guess{msg, "did you mean " + hint + "?"}
}
