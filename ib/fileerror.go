package ib

import (
	"fmt"
	"strings"
)

// FileError is a mistake of a text file with its place.
type FileError struct {
	File      string
	Line, Col int // from 1; Col counts bytes
	Msg       string
}

// Error prints file:line:column and what is wrong.
func (e *FileError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// FileErrors are the mistakes of a file, in its order.
type FileErrors []*FileError

// Error prints one mistake a line.
func (e FileErrors) Error() string {
	s := make([]string, len(e))
	for i, x := range e {
		s[i] = x.Error()
	}
	return strings.Join(s, "\n")
}

// Unwrap gives errors.As and errors.Is each mistake.
func (e FileErrors) Unwrap() []error {
	s := make([]error, len(e))
	for i, x := range e {
		s[i] = x
	}
	return s
}
