package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

func parseMark(s string) (Mark, error) {
	v, m, masked := strings.Cut(s, "/")
	n, err := parseUint(v, 0, math.MaxUint32)
	if err != nil {
		return Mark{}, err
	}
	out := Mark{uint32(n), math.MaxUint32}
	if masked {
		k, err := parseUint(m, 1, math.MaxUint32)
		if err != nil {
			return Mark{}, fmt.Errorf("mask %w", err)
		}
		out.Mask = uint32(k)
	}
	return out, nil
}

// parseRange reads "N" or "N-M".
func parseRange(s string, lo, hi uint64) (a, b uint64, err error) {
	first, last, ranged := strings.Cut(s, "-")
	if a, err = parseUint(strings.TrimSpace(first), lo, hi); err != nil {
		return 0, 0, err
	}
	b = a
	if ranged {
		if b, err = parseUint(strings.TrimSpace(last), lo, hi); err != nil {
			return 0, 0, err
		}
	}
	if a > b {
		return 0, 0, fmt.Errorf("range %q starts above its end", ib.Clip(s))
	}
	return a, b, nil
}

func parsePortRange(s string) (PortRange, error) {
	a, b, err := parseRange(s, 1, 65535)
	return PortRange{uint16(a), uint16(b)}, err
}

func parseUIDRange(s string) (UIDRange, error) {
	if s == "root" {
		return UIDRange{}, nil
	}
	a, b, err := parseRange(s, 0, math.MaxUint32-1)
	if err != nil {
		return UIDRange{}, fmt.Errorf("%w; write the user's number or a range of numbers (id -u NAME prints it)", err)
	}
	return UIDRange{uint32(a), uint32(b)}, nil
}

// String prints the mark as a unit file has it.
func (m Mark) String() string {
	if m.Mask == math.MaxUint32 {
		return strconv.FormatUint(uint64(m.Value), 10)
	}
	return fmt.Sprintf("%d/%d", m.Value, m.Mask)
}

// String prints the range as a unit file has it.
func (r PortRange) String() string { return printRange(uint64(r.First), uint64(r.Last)) }

// String prints the range as a unit file has it.
func (r UIDRange) String() string { return printRange(uint64(r.First), uint64(r.Last)) }

func printRange(a, b uint64) string {
	if a == b {
		return strconv.FormatUint(a, 10)
	}
	return fmt.Sprintf("%d-%d", a, b)
}

// String prints the next hop as a unit file has it.
func (n NextHop) String() string {
	s := n.Gateway.String()
	if n.Interface != "" {
		s += "@" + n.Interface
	}
	return fmt.Sprintf("%s %d", s, n.Weight)
}
