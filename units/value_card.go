package units

import (
	"fmt"
	"math"
	"strings"

	"ibnetworkd/ib"
)

// parsePriorityMap reads "from:to".
func parsePriorityMap(maxFrom, maxTo uint64) func(string) (PriorityMap, error) {
	return func(s string) (PriorityMap, error) {
		from, to, ok := strings.Cut(s, ":")
		if !ok {
			return PriorityMap{}, fmt.Errorf("%q is not FROM:TO", ib.Clip(s))
		}
		a, err := parseUint(from, 0, maxFrom)
		if err != nil {
			return PriorityMap{}, err
		}
		b, err := parseUint(to, 0, maxTo)
		return PriorityMap{uint8(a), uint8(b)}, err
	}
}

// String prints the item as a unit file has it.
func (m PriorityMap) String() string { return fmt.Sprintf("%d:%d", m.From, m.To) }

func parseETS(s string) (ETSClass, error) {
	class, share, ok := strings.Cut(s, ":")
	if !ok {
		return ETSClass{}, fmt.Errorf("%q is not CLASS:strict or CLASS:PERCENT", ib.Clip(s))
	}
	n, err := parseUint(class, 0, 7)
	if err != nil {
		return ETSClass{}, fmt.Errorf("traffic class %w", err)
	}
	if share == "strict" {
		return ETSClass{Class: uint8(n), Strict: true}, nil
	}
	p, err := parseUint(strings.TrimSuffix(share, "%"), 0, 100)
	if err != nil {
		return ETSClass{}, fmt.Errorf("%q is neither strict nor a share from 0 to 100 percent", ib.Clip(share))
	}
	return ETSClass{Class: uint8(n), Percent: uint8(p)}, nil
}

// String prints the item as a unit file has it.
func (e ETSClass) String() string {
	if e.Strict {
		return fmt.Sprintf("%d:strict", e.Class)
	}
	return fmt.Sprintf("%d:%d%%", e.Class, e.Percent)
}

func parseBufferSize(s string) (BufferSize, error) {
	buf, size, ok := strings.Cut(s, ":")
	if !ok {
		return BufferSize{}, fmt.Errorf("%q is not BUFFER:SIZE", ib.Clip(s))
	}
	n, err := parseUint(buf, 0, 7)
	if err != nil {
		return BufferSize{}, fmt.Errorf("buffer %w", err)
	}
	b, err := parseSize(size)
	if err == nil && b > math.MaxUint32 {
		err = fmt.Errorf("%q is too large", ib.Clip(size))
	}
	return BufferSize{Buffer: uint8(n), Bytes: uint32(b)}, err
}

// String prints the item as a unit file has it.
func (b BufferSize) String() string { return fmt.Sprintf("%d:%d", b.Buffer, b.Bytes) }

func parseQOSMap(s string) (QOSMap, error) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return QOSMap{}, fmt.Errorf("%q is not FROM-TO", ib.Clip(s))
	}
	a, err := parseUint(from, 0, math.MaxUint32)
	if err != nil {
		return QOSMap{}, err
	}
	b, err := parseUint(to, 0, math.MaxUint32)
	return QOSMap{uint32(a), uint32(b)}, err
}

// String prints the item as a unit file has it.
func (m QOSMap) String() string { return fmt.Sprintf("%d-%d", m.From, m.To) }
