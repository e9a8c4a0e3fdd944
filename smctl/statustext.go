package smctl

import (
	"fmt"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// StatusText is the text that a worker reports as STATUS= with sd_notify(3), as systemctl
// status prints it. Its first word is the state of the subnet manager; the zero
// value is a worker that reported nothing.
type StatusText struct {
	// State is the state of the subnet manager; Known is whether it was reported.
	State SMState
	Known bool
	// Nodes is how many nodes the subnet has, for a master; 0 is not known.
	Nodes int
	// Others is how many other subnet managers it knows of.
	Others int
	// Note is a sentence for the administrator, or the whole text if it is not in
	// this form.
	Note string
}

// maxStatusText bounds in bytes what is taken of a worker's words.
const maxStatusText = 600

// String is the text of STATUS=.
func (s StatusText) String() string {
	out := ""
	if s.Known {
		out = s.State.String()
		if s.Nodes > 0 {
			out += fmt.Sprintf(", %d nodes", s.Nodes)
		}
		switch s.Others {
		case 0:
			out += ", no other subnet manager"
		case 1:
			out += ", 1 other subnet manager"
		default:
			out += fmt.Sprintf(", %d other subnet managers", s.Others)
		}
	}
	switch {
	case s.Note == "":
		return out
	case out == "":
		return s.Note
	}
	return out + "; " + s.Note
}

// ParseStatusText reads the text of STATUS=. Text in another form is a note.
func ParseStatusText(text string) StatusText {
	text = clean(text)
	head, note, _ := strings.Cut(text, "; ")
	words := strings.Split(head, ", ")
	var s StatusText
	for st := SMNotActive; st <= SMMaster; st++ {
		if words[0] == st.String() {
			s.State, s.Known = st, true
		}
	}
	if !s.Known {
		return StatusText{Note: text}
	}
	for _, w := range words[1:] {
		count, what, _ := strings.Cut(w, " ")
		n, err := strconv.Atoi(count)
		switch {
		case what == "nodes" && err == nil && n > 0:
			s.Nodes = n
		case strings.HasPrefix(what, "other subnet manager") && err == nil && n > 0:
			s.Others = n
		}
	}
	s.Note = note
	return s
}

// clean makes one printable line of bounded length out of a program's text.
func clean(s string) string {
	if len(s) > maxStatusText {
		s = strings.ToValidUTF8(s[:maxStatusText], "")
	}
	return strings.TrimSpace(ib.Printable(s))
}
