package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// minText is the narrowest column that a sentence is wrapped in; where a table
// leaves less, sentences have lines of their own below their row.
const minText = 40

// terminalWidth is the number of columns of a terminal, 0 where out is none.
// $COLUMNS counts before what the terminal says, as in other programs.
func terminalWidth(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 && n < 1<<15 {
		return n
	}
	return cmp.Or(int(ws.Col), 80)
}

// visible is the number of columns that s takes, without colours.
func visible(s string) int { return len([]rune(controls.ReplaceAllString(s, ""))) }

// wrap breaks text between words into lines of at most width columns. A longer
// word has a line of its own. Width 0 is no limit.
func wrap(text string, width int) []string {
	if width <= 0 || visible(text) <= width {
		return []string{text}
	}
	var out []string
	line, used := "", 0
	for w := range strings.FieldsSeq(text) {
		n := visible(w)
		switch {
		case line == "":
			line, used = w, n
		case used+1+n <= width:
			line, used = line+" "+w, used+1+n
		default:
			out = append(out, line)
			line, used = w, n
		}
	}
	return append(out, line)
}

// printWrapped prints text in lines of at most width columns, 0 for no limit: the
// first one behind indent, the others two columns further in.
func printWrapped(out io.Writer, width int, indent, text string) {
	if width > 0 {
		width = max(width-len(indent)-2, minText)
	}
	for i, l := range wrap(text, width) {
		if i == 1 {
			indent += "  "
		}
		fmt.Fprintln(out, indent+l)
	}
}

// say prints text after head, which is a line's beginning of the given number of
// columns, and wraps it to the terminal with all lines behind the head.
func (a *app) say(head string, columns int, text string) {
	a.lines(head, strings.Repeat(" ", columns), columns, text)
}

// lines is say with the head of the lines after the first. Each line is painted by
// itself: less ends a colour with the line.
func (a *app) lines(head, rest string, columns int, text string) {
	width, style := 0, ""
	if a.width > 0 {
		width = max(a.width-columns, minText)
	}
	if m := painted.FindStringSubmatch(text); m != nil {
		style, text = m[1], m[2]
	}
	for i, l := range wrap(text, width) {
		if i > 0 {
			head = rest
		}
		fmt.Fprintln(a.out, strings.TrimRight(head+a.paint(style, l), " "))
	}
}

// painted is a text of one style.
var painted = regexp.MustCompile("^\x1b\\[([0-9;]+)m([^\x1b]*)\x1b\\[0m$")

// script prints lines of a shell script. On a terminal a comment goes on in further
// comments, and a command behind a backslash.
func (a *app) script(style, text string) {
	const rest = "#     "
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if a.width == 0 || visible(line) <= a.width {
			fmt.Fprintln(a.out, a.paint(style, line))
			continue
		}
		command, note, _ := strings.Cut(line, "   #")
		if strings.HasPrefix(line, "#") {
			command, note = "", line[1:]
		}
		out := ""
		for _, w := range shellWords.FindAllString(command, -1) {
			switch {
			case out == "":
				out = w
			case visible(out+" "+w+" \\") <= a.width:
				out += " " + w
			default:
				fmt.Fprintln(a.out, a.paint(style, out+" \\"))
				out = "    " + w
			}
		}
		if out != "" {
			fmt.Fprintln(a.out, a.paint(style, out))
		}
		if text := strings.TrimLeft(note, " "); text != "" {
			head, rest, n := a.paint(style, "#"+note[:len(note)-len(text)]), a.paint(style, rest), len(rest)
			if slices.ContainsFunc(pasted.FindAllString(text, -1), func(s string) bool { return n+visible(s) > a.width }) {
				a.lines(head, rest, n, a.paint(style, text))
			} else {
				a.pieces(head, rest, n, text, style)
			}
		}
	}
}

// shellWords are the words of a command, each with its quoted blanks.
var shellWords = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^ '"])+|['"].*`)

// pasted is what is typed or pasted of a next step: a command up to a semicolon, a
// comma, a parenthesis or a remark behind three blanks, or a line of a partitions file.
var pasted = regexp.MustCompile(`(?:^|[;:(] *| (?:or|then|and|with) |   )(` +
	`(?:sudo )?(?:cat|devlink|dmesg|echo|ibnetctl|ibportstate|ibstat|ip|journalctl|lspci|modinfo|modprobe|mstconfig|rdma|saquery|sminfo|` +
	`smpquery|sysctl|systemctl|udevadm|watch) (?:[^;,() ]| [^ ;,()])*|p[0-9a-f]{4}=0x[^;]*;)`)

// step prints a next step as say does, and breaks no line within what is pasted.
func (a *app) step(head string, columns int, text string) {
	a.pieces(head, strings.Repeat(" ", columns), columns, text, "")
}

// pieces is lines that breaks no line within what is pasted.
func (a *app) pieces(head, rest string, columns int, text, style string) {
	const blank = "\ue000" // no space, and a column wide
	if a.width > 0 {
		for _, at := range slices.Backward(pasted.FindAllStringSubmatchIndex(text, -1)) {
			whole, _, _ := strings.Cut(text[at[2]:at[3]], " or ")
			text = text[:at[2]] + strings.ReplaceAll(whole, " ", blank) + text[at[2]+len(whole):]
		}
	}
	var b strings.Builder
	to := *a
	to.out = &b
	to.lines(head, rest, columns, a.paint(style, text))
	fmt.Fprint(a.out, strings.ReplaceAll(b.String(), blank, " "))
}

// cell is one field of a table, with its style.
type cell struct{ text, style string }

// table prints rows in columns. The last column is text: it is wrapped, or on
// lines of its own below the row, where the terminal is too narrow. Columns named
// in drop are left out, in that order, while the others do not fit.
func (a *app) table(indent string, head []string, rows [][]cell, drop ...string) {
	last := len(head) - 1
	keep := make([]int, 0, last)
	for i := range last {
		keep = append(keep, i)
	}
	width := make([]int, len(head))
	for i, h := range head {
		width[i] = visible(h)
		for _, r := range rows {
			width[i] = max(width[i], visible(r[i].text))
		}
	}
	fixed := func() int {
		n := len(indent)
		for _, i := range keep {
			n += width[i] + 2
		}
		return n
	}
	for _, d := range drop {
		if a.width == 0 || fixed()-2 <= a.width {
			break
		}
		keep = slices.DeleteFunc(keep, func(i int) bool { return head[i] == d })
	}
	left := fixed()
	below := a.width > 0 && width[last] > a.width-left && a.width-left < minText
	line := func(r []cell) {
		var b strings.Builder
		b.WriteString(indent)
		for _, i := range keep {
			b.WriteString(a.paint(r[i].style, r[i].text) + strings.Repeat(" ", width[i]-visible(r[i].text)+2))
		}
		switch text := r[last]; {
		case !below:
			a.say(b.String(), left, a.paint(text.style, text.text))
		default:
			fmt.Fprintln(a.out, strings.TrimRight(b.String(), " "))
			if text.text != "" {
				in := indent + "     "
				a.say(in, len(in), a.paint(text.style, text.text))
			}
		}
	}
	if strings.Join(head, "") != "" {
		h := make([]cell, len(head))
		for i, s := range head {
			h[i] = cell{s, faint}
		}
		if below {
			h[last] = cell{}
		}
		line(h)
	}
	for _, r := range rows {
		line(r)
	}
}
