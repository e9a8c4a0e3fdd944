package units

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"ibnetworkd/ib"
)

// nodeDescriptionMax is the size of NodeDescription in bytes (IBTA 14.2.5.2).
const nodeDescriptionMax = 64

// parseNodeDescription checks the specifiers of a node description.
func parseNodeDescription(s string) (string, error) {
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		i++
		if i == len(s) || strings.IndexByte("Hhd%", s[i]) < 0 {
			return "", fmt.Errorf("%q: \"%%\" must be followed by H, d or %%", ib.Clip(s))
		}
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return "", fmt.Errorf("%q has a control character", ib.Clip(s))
		}
	}
	return s, nil
}

// ExpandNodeDescription puts the host name up to its first dot in place of %H
// (or %h, as rdma-ndd writes it) and the RDMA device in place of %d, and cuts the
// result to the 64 bytes of a node description, not inside a character.
func ExpandNodeDescription(text, hostname, dev string) string {
	short, _, _ := strings.Cut(hostname, ".")
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 'H', 'h':
			b.WriteString(short)
		case 'd':
			b.WriteString(dev)
		default:
			b.WriteByte(text[i])
		}
	}
	s := b.String()
	for len(s) > nodeDescriptionMax {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
