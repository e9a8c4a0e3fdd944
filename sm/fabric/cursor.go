package fabric

import (
	"strconv"
	"strings"
)

// cursor walks one line.
type cursor struct {
	s string
	i int
}

func (c *cursor) end() bool { return c.i >= len(c.s) }
func (c *cursor) col() int  { return c.i + 1 }
func (c *cursor) peek() byte {
	if c.end() {
		return 0
	}
	return c.s[c.i]
}

func (c *cursor) space() {
	for !c.end() && (c.s[c.i] == ' ' || c.s[c.i] == '\t' || c.s[c.i] == '\r') {
		c.i++
	}
}

// word takes everything up to a blank or a character of the form's syntax.
func (c *cursor) word() string {
	j := c.i
	for !c.end() && !strings.ContainsRune(" \t\r\"[]()=#", rune(c.s[c.i])) {
		c.i++
	}
	return c.s[j:c.i]
}

func (c *cursor) quoted() (string, bool) {
	if c.peek() != '"' {
		return "", false
	}
	j := strings.IndexByte(c.s[c.i+1:], '"')
	if j < 0 {
		c.i = len(c.s)
		return "", false
	}
	v := c.s[c.i+1 : c.i+1+j]
	c.i += j + 2
	return v, true
}

// outerQuoted takes what stands between this quote and the last of the line: a
// node's description may contain quotes.
func (c *cursor) outerQuoted() (string, bool) {
	j := strings.LastIndexByte(c.s, '"')
	if c.peek() != '"' || j == c.i {
		return c.quoted()
	}
	v := c.s[c.i+1 : j]
	c.i = j + 1
	return v, true
}

func (c *cursor) bracket() (uint8, bool) {
	c.space()
	if c.peek() != '[' {
		return 0, false
	}
	c.i++
	v, err := strconv.ParseUint(c.word(), 10, 8)
	if err != nil || c.peek() != ']' {
		return 0, false
	}
	c.i++
	return uint8(v), true
}

func (c *cursor) paren() (uint64, bool) {
	if c.peek() != '(' {
		return 0, false
	}
	c.i++
	v, err := strconv.ParseUint(strings.TrimPrefix(c.word(), "0x"), 16, 64)
	if err != nil || c.peek() != ')' {
		return 0, false
	}
	c.i++
	return v, true
}

// comment skips to behind the line's #.
func (c *cursor) comment() bool {
	j := strings.IndexByte(c.s[c.i:], '#')
	if j < 0 {
		c.i = len(c.s)
		return false
	}
	c.i += j + 1
	return true
}
