package daemon

import (
	"fmt"
	"slices"

	"ibnetworkd/link"
)

// heldError is of an operation that was not tried, because one that it depends on has failed.
type heldError struct{ by link.Op }

func (e heldError) Error() string { return fmt.Sprintf("not tried, because %q has failed", e.by) }

// failures are the operations of a plan that have failed so far.
type failures []link.Op

// note notes the result of an operation. One that the kernel refuses because there is nothing to do has not failed.
func (f *failures) note(op link.Op, err error) {
	if err == nil {
		return
	}
	if v, _ := classify(op, err); v != verdictDone {
		*f = append(*f, op)
	}
}

// hold returns why an operation is not to be tried, nil if it is.
func (f failures) hold(op link.Op) error {
	for _, x := range f {
		if link.Depends(op, x) {
			return heldError{x}
		}
	}
	return nil
}

// awaits reports whether an operation depends on one that is still to be answered.
func awaits(op link.Op, pending []link.Op) bool {
	return slices.ContainsFunc(pending, func(x link.Op) bool { return link.Depends(op, x) })
}
