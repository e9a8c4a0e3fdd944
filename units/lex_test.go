package units

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dump prints a lexed file with the place of every section, key and value.
func dump(f *rawFile) string {
	var b strings.Builder
	for _, s := range f.sections {
		fmt.Fprintf(&b, "%d:%d [%s]\n", s.pos.line, s.pos.column, s.name)
		for i := range s.assigns {
			a := &s.assigns[i]
			fmt.Fprintf(&b, "%d:%d %s = %d:%d %q\n", a.keyPos.line, a.keyPos.column, a.key, a.pos().line, a.pos().column, a.val)
		}
	}
	for _, p := range f.problems {
		fmt.Fprintf(&b, "%s\n", p)
	}
	return b.String()
}

func TestLex(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct{ name, in, want string }{
		{"OK empty", "", ""},
		{"OK BOM at the start", "\ufeff[A]\nK=v\n", "1:4 [A]\n2:1 K = 2:3 \"v\"\n"},
		{"OK BOM before a comment", "\ufeff# c\n[A]\n", "2:1 [A]\n"},
		{"OK first BOM in the middle", "[A]\n\ufeffK=v\n", "1:1 [A]\n2:4 K = 2:6 \"v\"\n"},
		{"bad second BOM", "\ufeff[A]\n\ufeffK=v\n", "1:4 [A]\n2:1 \ufeffK = 2:6 \"v\"\n"},
		{"OK CRLF", "[A]\r\nK=v\r\n\r\nL=w\r\n", "1:1 [A]\n2:1 K = 2:3 \"v\"\n4:1 L = 4:3 \"w\"\n"},
		{"OK CR alone and LFCR end a line", "[A]\rK=v\n\rL=w", "1:1 [A]\n2:1 K = 2:3 \"v\"\n3:1 L = 3:3 \"w\"\n"},
		{"OK NUL ends a line", "[A]\x00K=v", "1:1 [A]\n2:1 K = 2:3 \"v\"\n"},
		{"OK blanks around everything", " \t[A] \n  K  =  v w \t\n", "1:3 [A]\n2:3 K = 2:9 \"v w\"\n"},
		{"OK second = belongs to the value", "[A]\nK=a=b\n", "1:1 [A]\n2:1 K = 2:3 \"a=b\"\n"},
		{"OK empty value has the place of its key", "[A]\n K=\n", "1:1 [A]\n2:2 K = 2:2 \"\"\n"},
		{"OK continuation becomes a blank", "[A]\nK=a\\\nb\n", "1:1 [A]\n2:1 K = 2:3 \"a b\"\n"},
		{"OK value begins on the next line", "[A]\nK= \\\n  b\n", "1:1 [A]\n2:1 K = 3:3 \"b\"\n"},
		{"OK escaped backslash does not continue", "[A]\nK=a\\\\\nL=b\n", "1:1 [A]\n2:1 K = 2:3 \"a\\\\\\\\\"\n3:1 L = 3:3 \"b\"\n"},
		{"OK three backslashes continue", "[A]\nK=a\\\\\\\nb\n", "1:1 [A]\n2:1 K = 2:3 \"a\\\\\\\\ b\"\n"},
		{"OK blank line ends a continuation", "[A]\nK=a\\\n\nL=b\n", "1:1 [A]\n2:1 K = 2:3 \"a\"\n4:1 L = 4:3 \"b\"\n"},
		{"OK comment in a continuation", "[A]\nK=a\\\n# x \\\n ; y\nb\n", "1:1 [A]\n2:1 K = 2:3 \"a b\"\n"},
		{"OK continuation open at the end", "[A]\nK=a\\", "1:1 [A]\n2:1 K = 2:3 \"a\"\n"},
		{"OK comment does not continue", "# x \\\n[A]\n", "2:1 [A]\n"},
		{"OK header over two lines", "[A\\\nB]\n", "1:1 [A B]\n"},
		{"bad before a section", "K=v\n[A]\n", "2:1 [A]\nf:1:1: warning: \"K=v\" is outside of any section; the line is ignored\n"},
		{"bad no =", "[A]\n word\n", "1:1 [A]\nf:2:2: warning: \"word\" has no \"=\"; write Key=value; the line is ignored\n"},
		{"bad no key", "[A]\n=v\n", "1:1 [A]\nf:2:1: warning: no key before the \"=\"; the line is ignored\n"},
		{"bad UTF-8", "[A]\nK=a\xffb\nL=c\n", "1:1 [A]\nf:2:4: error: byte 0xff is not valid UTF-8; the file is not used\n"},
		{"bad UTF-8 on a continued line", "[A]\nK=a\\\n  \xc3(\nL=c\n",
			"1:1 [A]\nf:3:3: error: byte 0xc3 is not valid UTF-8; the file is not used\n"},
		{"bad header end", "[A]\n[B\nK=v\n", "1:1 [A]\nf:2:1: error: section header \"[B\" does not end with \"]\"; the file is " +
			"not used\n"},
		{"bad noncharacter", "[A]\nK=\ufffe\n", "1:1 [A]\nf:2:3: error: U+FFFE is not a character; the file is not used\n"},
		{"OK replacement character", "[A]\nK=\ufffd\n", "1:1 [A]\n2:1 K = 2:3 \"\ufffd\"\n"},
		{"bad header byte", "[A\x01]\n", "f:1:3: error: section header has the character '\\x01'; the file is not used\n"},
		{"bad quote in a header", "[A\"]\n", "f:1:3: error: section header has the character '\"'; the file is not used\n"},
		{"bad long line", "[A]\nK=" + long + "\n", "1:1 [A]\nf:2:1: error: line is longer than 1 MiB; the file is not used\n"},
		{"bad long joined line", "[A]\nK=" + long[:maxLine/2] + "\\\n" + long[:maxLine/2] + "\n",
			"1:1 [A]\nf:3:1: error: continued line is longer than 1 MiB; the file is not used\n"},
		{"OK longest joined line", "[A]\nK=" + long[:maxLine-100] + "\\\n" + long[:97] + "\n",
			"1:1 [A]\n2:1 K = 2:3 \"" + long[:maxLine-100] + " " + long[:97] + "\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, dump(lex("f", tt.in))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestManyProblemsAreBounded(t *testing.T) {
	f := lex("f", "[A]\n"+strings.Repeat("x\n", 5000))
	if len(f.problems) != maxFileProblems+1 || !strings.Contains(f.problems[maxFileProblems].Message, "4000 more") {
		t.Errorf("%d problems, the last: %v", len(f.problems), f.problems[len(f.problems)-1])
	}
}

// TestPositionsPointAtTheBytes checks on random texts that the byte of a value
// and the byte that its position names are the same.
func TestPositionsPointAtTheBytes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b", "=", " ", "\t", "\\\n", "\n", "\r\n", "#", ";", "[S]\n", "K=", "\\", "é", "x y", "\n\n"}
	for range 20000 {
		var b strings.Builder
		b.WriteString("[A]\n")
		for range rnd.IntN(40) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		text := b.String()
		checkPositions(t, text)
	}
}

// checkPositions checks that the bytes of keys and values are those at the places
// that the lexer gives.
func checkPositions(t *testing.T, text string) {
	t.Helper()
	var lines []string
	for rest := text; rest != ""; {
		var l string
		l, rest = nextLine(rest)
		lines = append(lines, l)
	}
	f := lex("f", text)
	for _, s := range f.sections {
		for i := range s.assigns {
			a := &s.assigns[i]
			if got := lines[a.keyPos.line-1][a.keyPos.column-1:]; !strings.HasPrefix(a.key, got) &&
				!strings.HasPrefix(got, a.key) && !strings.Contains(got, "\\") {
				t.Fatalf("%q: key %q said to be at %q", text, a.key, got)
			}
			for off := range len(a.val) {
				p := a.at(off)
				line := lines[p.line-1]
				if p.column < 1 || p.column > uint32(len(line)) {
					t.Fatalf("%q: byte %d of %q is said to be at %v", text, off, a.val, p)
				}
				if c := line[p.column-1]; c != a.val[off] && !(c == '\\' && a.val[off] == ' ' && p.column == uint32(len(line))) {
					t.Fatalf("%q: byte %d of %q is %q, at %v stands %q", text, off, a.val, a.val[off], p, c)
				}
			}
		}
	}
}

func TestSplitters(t *testing.T) {
	for _, tt := range []struct {
		name  string
		split splitter
		in    string
		want  []string
		bad   bool
	}{
		{"OK words", words, " a  b\tc ", []string{"a", "b", "c"}, false},
		{"OK commas", commaWords, "a, b,,c", []string{"a", "b", "c"}, false},
		{"OK whole", whole, " a b ", []string{"a b"}, false},
		{"OK quotes join", quotedWords, `"a b"c 'd"e' f\ g`, []string{"a bc", `d"e`, `f\ g`}, false},
		{"OK quoted empty item", quotedWords, `a "" b`, []string{"a", "", "b"}, false},
		{"bad open quote", quotedWords, `a "b`, []string{"a"}, true},
		{"OK escapes", escapedWords, `a\x41 \tb\\ \s \101 \u00e9`, []string{"aA", "\tb\\", " ", "A", "é"}, false},
		{"bad escape", escapedWords, `a \q`, []string{"a"}, true},
		{"bad NUL escape", escapedWords, `\x00`, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			var fail error
			for rest := tt.in; ; {
				s, e, item, err := tt.split(rest)
				if err != nil {
					fail = err
					break
				}
				if s == e {
					break
				}
				got = append(got, item)
				rest = rest[e:]
			}
			if !slices.Equal(got, tt.want) || (fail != nil) != tt.bad {
				t.Errorf("got %q, %v", got, fail)
			}
		})
	}
}
