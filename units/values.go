package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"ibnetworkd/ib"
)

// parseBool reads systemd's words for yes and no, in any case.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true, nil
	case "0", "no", "n", "false", "f", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is not a boolean (yes or no)", ib.Clip(s))
}

// suffix is a unit of a size or a time span, with its factor.
type suffix struct {
	name   string
	factor uint64
}

var sizeSuffixes = []suffix{{"E", 1 << 60}, {"P", 1 << 50}, {"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10},
	{"B", 1}, {"", 1}}

var rateSuffixes = []suffix{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"K", 1e3}, {"", 1}}

// spanSuffixes are in microseconds. A longer name comes before its beginning.
var spanSuffixes = []suffix{
	{"seconds", 1e6}, {"second", 1e6}, {"sec", 1e6}, {"s", 1e6},
	{"minutes", 60e6}, {"minute", 60e6}, {"min", 60e6},
	{"months", 2629800e6}, {"month", 2629800e6}, {"M", 2629800e6},
	{"msec", 1e3}, {"ms", 1e3}, {"m", 60e6},
	{"hours", 3600e6}, {"hour", 3600e6}, {"hr", 3600e6}, {"h", 3600e6},
	{"days", 86400e6}, {"day", 86400e6}, {"d", 86400e6},
	{"weeks", 604800e6}, {"week", 604800e6}, {"w", 604800e6},
	{"years", 31557600e6}, {"year", 31557600e6}, {"y", 31557600e6},
	{"usec", 1}, {"us", 1}, {"µs", 1}, {"μs", 1},
}

// leadingDigits is the number of decimal digits that s begins with.
func leadingDigits(s string) int { return run(s, func(c byte) bool { return c >= '0' && c <= '9' }) }

// cSpace is what isspace(3) skips before a number.
const cSpace = " \t\n\v\f\r"

// cutInt cuts an integer off as strtoull(3) does, with blanks and a "+" before it.
// sized is false where it does not fit into 64 bits.
func cutInt(s string) (v uint64, rest string, found, sized bool) {
	t := strings.TrimPrefix(strings.TrimLeft(s, cSpace), "+")
	n := leadingDigits(t)
	if n == 0 {
		return 0, s, false, true
	}
	v, err := strconv.ParseUint(t[:n], 10, 64)
	return v, t[n:], true, err == nil
}

// cutSuffix finds the first suffix that s begins with.
func cutSuffix(s string, suffixes []suffix) (i int, rest string) {
	for i, x := range suffixes {
		if r, ok := strings.CutPrefix(s, x.name); ok {
			return i, r
		}
	}
	return -1, s
}

// wordOf is what a message quotes of an unknown unit.
func wordOf(s string) string {
	n := run(s, func(c byte) bool { return c > ' ' && c != '.' && (c < '0' || c > '9') })
	return ib.Clip(s[:max(n, min(1, len(s)))])
}

// notANumber returns why no term begins at rest.
func notANumber(s, rest, what string) error {
	if strings.HasPrefix(rest, "-") {
		return fmt.Errorf("%q is not a %s: it is negative", ib.Clip(s), what)
	}
	if rest == "" {
		return fmt.Errorf("%q is not a %s: no number at its end", ib.Clip(s), what)
	}
	return fmt.Errorf("%q is not a %s: no number at %q", ib.Clip(s), what, ib.Clip(rest))
}

// parseSizes adds terms "NUMBER[.FRACTION][ ][SUFFIX]" with ever smaller suffixes,
// as systemd's sizes are (systemd.syntax(7); the cases are judged by the installed
// systemd in a test).
func parseSizes(s string, suffixes []suffix, what string) (uint64, error) {
	large := fmt.Errorf("%q is too large", ib.Clip(s))
	var sum uint64
	for rest := s; ; {
		rest = strings.TrimLeft(rest, blanks)
		v, after, ok, sized := cutInt(rest)
		if !ok {
			return 0, notANumber(s, rest, what)
		}
		if !sized {
			return 0, large
		}
		fraction := 0.0
		if r, ok := strings.CutPrefix(after, "."); ok {
			n := leadingDigits(r)
			if _, err := strconv.ParseUint(r[:n], 10, 64); n > 0 && err != nil {
				return 0, large
			}
			fraction, _ = strconv.ParseFloat("0."+r[:n]+"0", 64)
			after = r[n:]
		}
		after = strings.TrimLeft(after, blanks)
		i, r := cutSuffix(after, suffixes)
		if i < 0 {
			return 0, fmt.Errorf("%q is not a %s: suffixes go from large to small, each once", ib.Clip(s), what)
		}
		f := suffixes[i].factor
		whole := v
		if fraction > 0 {
			whole++
		}
		if whole < v || whole > math.MaxUint64/f {
			return 0, large
		}
		term := v*f + uint64(fraction*float64(f))
		if sum+term < sum {
			return 0, large
		}
		sum += term
		if r == "" {
			return sum, nil
		}
		if suffixes[i].name == "" {
			if t := strings.TrimLeft(r, blanks); t == "" || leadingDigits(t) == 0 {
				return 0, fmt.Errorf("%q is not a %s: unknown suffix %q", ib.Clip(s), what, wordOf(after))
			}
		}
		rest, suffixes = r, suffixes[i+1:]
	}
}

// parseSize reads a size in bytes, base 1024.
func parseSize(s string) (uint64, error) { return parseSizes(s, sizeSuffixes, "size") }

// parseBitRate reads bits per second, base 1000, and gives Mbit/s.
func parseBitRate(s string) (uint32, error) {
	v, err := parseSizes(s, rateSuffixes, "rate in bits per second")
	switch {
	case err != nil:
		return 0, err
	case v > 0 && v < 1e6:
		return 0, fmt.Errorf("%q is less than 1M; the kernel counts in Mbit/s", ib.Clip(s))
	case v/1e6 > math.MaxUint32:
		return 0, fmt.Errorf("%q is too large", ib.Clip(s))
	}
	return uint32(v / 1e6), nil
}

// maxSpan means "infinity", and what is longer than a time.Duration.
const maxSpan = time.Duration(math.MaxInt64)

// parseSpan parses a time span by systemd.time(7); a number without a unit is seconds.
func parseSpan(s string) (time.Duration, error) {
	us, err := parseMicroseconds(s)
	if err != nil || us > math.MaxInt64/1000 {
		return maxSpan, err
	}
	return time.Duration(us) * time.Microsecond, nil
}

// foreverUS is systemd's "infinity".
const foreverUS = math.MaxUint64

func parseMicroseconds(s string) (uint64, error) {
	const what = "time span"
	large := fmt.Errorf("%q is too large", ib.Clip(s))
	rest := strings.TrimLeft(s, blanks)
	if strings.Trim(rest, blanks) == "infinity" {
		return foreverUS, nil
	}
	if rest == "" {
		return 0, errors.New("is empty")
	}
	var sum uint64
	add := func(v, factor uint64) bool {
		if v >= foreverUS/factor || v*factor >= foreverUS-sum {
			return false
		}
		sum += v * factor
		return true
	}
	for ; rest != ""; rest = strings.TrimLeft(rest, blanks) {
		v, after, found, sized := cutInt(rest)
		if !sized || v > math.MaxInt64 {
			return 0, large
		}
		fraction, point := strings.CutPrefix(after, ".")
		if !found && (!point || after != rest) {
			if sum > 0 && rest[0] > '9' {
				return 0, fmt.Errorf("%q is not a %s: unknown unit %q", ib.Clip(s), what, wordOf(rest))
			}
			return 0, notANumber(s, rest, what)
		}
		n := 0
		if point {
			n = leadingDigits(fraction)
			if n == 0 {
				return 0, fmt.Errorf("%q is not a %s: no digit after the point", ib.Clip(s), what)
			}
			after = fraction[n:]
		}
		factor := uint64(1e6)
		i, r := cutSuffix(strings.TrimLeft(after, blanks), spanSuffixes)
		if i >= 0 {
			factor = spanSuffixes[i].factor
		} else if r == after && r != "" {
			return 0, fmt.Errorf("%q is not a %s: unknown unit %q", ib.Clip(s), what, wordOf(r))
		}
		rest = r
		if !add(v, factor) {
			return 0, large
		}
		for k, digit := 0, factor/10; k < n; k, digit = k+1, digit/10 {
			if digit > 0 && !add(uint64(fraction[k]-'0'), digit) {
				return 0, large
			}
		}
	}
	return sum, nil
}

// spanTo is a parser for spans from lo to hi.
func spanTo(lo, hi time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := parseSpan(s)
		if err == nil && (d < lo || d > hi) {
			err = fmt.Errorf("%q is not from %s to %s", ib.Clip(s), formatSpan(lo), formatSpan(hi))
			if n, e := strconv.ParseInt(s, 10, 32); e == nil && time.Duration(n)*time.Millisecond >= lo && time.Duration(n)*time.Millisecond <= hi {
				err = fmt.Errorf("%w; a bare number is seconds: write %sms for milliseconds", err, s)
			}
		}
		return d, err
	}
}

// formatSpan prints a span as a unit file has it.
func formatSpan(d time.Duration) string {
	if d == maxSpan {
		return "infinity"
	}
	if d == 0 {
		return "0"
	}
	var out []string
	for _, u := range []struct {
		d time.Duration
		s string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond,
		"ms"}, {time.Microsecond, "us"}} {
		if n := d / u.d; n > 0 {
			out = append(out, fmt.Sprintf("%d%s", n, u.s))
			d -= n * u.d
		}
	}
	return strings.Join(out, " ")
}

// parseUint reads a number as systemd's safe_atou does, decimal, octal with 0 or
// 0o, or with 0x or 0b, between lo and hi.
func parseUint(s string, lo, hi uint64) (uint64, error) {
	t := strings.TrimLeft(s, blanks)
	t, minus := strings.CutPrefix(t, "-")
	if !minus {
		t = strings.TrimPrefix(t, "+")
	}
	v, err := strconv.ParseUint(t, 0, 64)
	// The C library knows a sign before 0x, but systemd none before its 0o and 0b.
	signed := t != strings.TrimLeft(s, blanks)
	if strings.Contains(s, "_") || signed && len(t) > 1 && strings.IndexByte("oObB", t[1]) >= 0 || err != nil &&
		!errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is not a number from %d to %d", ib.Clip(s), lo, hi)
	}
	if err != nil || v < lo || v > hi || minus && v > 0 {
		return 0, fmt.Errorf("%q is not from %d to %d", ib.Clip(s), lo, hi)
	}
	return v, nil
}

// number is a parser for numbers of one range.
func number[T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](lo, hi uint64) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parseUint(s, lo, hi)
		return T(v), err
	}
}

// minMTU is the smallest MTU in bytes that IPv4 works with (RFC 791).
const minMTU = 68

func parseMTUBytes(s string) (int, error) {
	v, err := parseSize(s)
	if err != nil {
		return 0, err
	}
	if v < minMTU || v > math.MaxInt32 {
		return 0, fmt.Errorf("%q is not an MTU from %d to %d bytes", ib.Clip(s), minMTU, math.MaxInt32)
	}
	return int(v), nil
}

func parseMTU(s string) (MTU, error) {
	if s == "max" {
		return MTU{Max: true}, nil
	}
	n, err := parseMTUBytes(s)
	if err != nil && strings.EqualFold(s, "max") {
		return MTU{}, fmt.Errorf("%q must be written max", ib.Clip(s))
	}
	return MTU{Bytes: n}, err
}
