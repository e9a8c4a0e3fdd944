package units

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

var long = flag.Bool("long", false, "judge 100,000 inputs of each kind by the installed systemd instead of 10,000")

// question is one input for testdata/judge/judge.c, which says what the installed
// systemd makes of it.
type question struct {
	kind byte
	text string
}

// buildJudge compiles the program, or skips the test where systemd's private
// library or a C compiler is absent.
func buildJudge(t *testing.T) string {
	libs, _ := filepath.Glob("/usr/lib/*/systemd/libsystemd-shared-*.so")
	more, _ := filepath.Glob("/usr/lib*/systemd/libsystemd-shared-*.so")
	libs = append(libs, more...)
	if len(libs) == 0 {
		t.Skip("not checked: systemd's libsystemd-shared is not installed")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("not checked: no C compiler")
	}
	exe := filepath.Join(t.TempDir(), "judge")
	cmd := exec.Command(cc, "-O1", "-o", exe, "testdata/judge/judge.c", libs[0], "-Wl,-rpath,"+filepath.Dir(libs[0]))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("not checked: %s cannot be linked (%v): %s", libs[0], err, text)
	}
	t.Logf("the judge is %s", filepath.Base(libs[0]))
	return exe
}

// ask gives the judge's answers.
func ask(t *testing.T, exe string, qs []question) []string {
	t.Helper()
	var in bytes.Buffer
	for _, q := range qs {
		in.WriteByte(q.kind)
		_ = binary.Write(&in, binary.LittleEndian, uint32(len(q.text)))
		in.WriteString(q.text)
	}
	cmd := exec.Command(exe)
	cmd.Stdin = &in
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=emerg", "SYSTEMD_LOG_TARGET=null")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("the judge failed:", err)
	}
	var answers []string
	for r := bytes.NewReader(out); ; {
		var n uint32
		if err := binary.Read(r, binary.LittleEndian, &n); err == io.EOF {
			break
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(b))
	}
	if len(answers) != len(qs) {
		t.Fatalf("%d answers to %d questions", len(answers), len(qs))
	}
	return answers
}

// stream prints what the lexer reads as the judge prints it.
func stream(f *rawFile) string {
	if f.refused {
		return "no"
	}
	var b strings.Builder
	quote := func(s string) {
		for _, c := range []byte(s) {
			if c == '\\' || c < ' ' {
				fmt.Fprintf(&b, "\\%02x", c)
			} else {
				b.WriteByte(c)
			}
		}
		b.WriteByte('\n')
	}
	for _, s := range f.sections {
		for _, a := range s.assigns {
			quote(s.name)
			quote(a.key)
			quote(a.val)
		}
	}
	return b.String()
}

// answerOf prints a parser's answer as the judge does.
func answerOf[T any](v T, err error) string {
	if err != nil {
		return "no"
	}
	return fmt.Sprint(v)
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// ours is this package's answer to a question.
func ours(q question, release, hostname string) string {
	a, b, _ := strings.Cut(q.text, "\x00")
	condition := func(err error, key, text string, h HostFacts) string {
		if err != nil {
			return "no"
		}
		return bit(Condition{Text: text}.holds(key, &h))
	}
	switch q.kind {
	case 'L':
		return stream(lex("x", q.text))
	case 'B':
		v, err := parseBool(q.text)
		if err != nil {
			return "no"
		}
		return bit(v)
	case 'T':
		return answerOf(parseMicroseconds(q.text))
	case 'S':
		return answerOf(parseSize(q.text))
	case 'M':
		return answerOf(parseMTUBytes(q.text))
	case 'U':
		return answerOf(parseUint(q.text, 0, math.MaxUint32))
	case 'V':
		return strconv.Itoa(compareVersions(a, b))
	case 'G':
		return bit(globMatch(a, b, false))
	case 'K':
		return condition(checkAny(b), "KernelCommandLine", b, HostFacts{KernelCommandLine: a})
	case 'R':
		return condition(checkVersions(q.text), "KernelVersion", q.text, HostFacts{KernelRelease: release})
	case 'A':
		return condition(checkArchitecture(q.text), "Architecture", q.text,
			HostFacts{Architecture: Architecture(map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH])})
	case 'H':
		return condition(nil, "Host", q.text, HostFacts{Hostname: hostname})
	}
	return "?"
}

// explained returns why an answer may differ from systemd's; ibnetwork(5) has the
// reasons that matter in a table. Empty is no reason.
func explained(q question, judge, mine string) string {
	switch q.kind {
	case 'M':
		if v, err := strconv.ParseUint(judge, 10, 64); err == nil && mine == "no" && (v < minMTU || v > math.MaxInt32) {
			return "MTU"
		}
	case 'S':
		j, err := strconv.ParseUint(judge, 10, 64)
		m, err2 := strconv.ParseUint(mine, 10, 64)
		switch {
		case err == nil && mine == "no" && strings.Contains(q.text, "18446744073709551615."):
			return "a sum beyond 64 bits"
		case err == nil && err2 == nil && max(j, m)-min(j, m) <= max(j, m)>>52:
			return "rounding of the 53rd bit"
		}
	case 'V':
		if strings.ContainsFunc(q.text, func(r rune) bool { return r > 0x7f }) {
			return "version with a character beyond ASCII"
		}
	case 'U':
		if i := strings.IndexAny(q.text, "bo"); i > 0 && mine == "no" && strings.IndexAny(q.text[i:], " \t+-") == 1 {
			return "blank or sign inside a number"
		}
	case 'G':
		p, s, _ := strings.Cut(q.text, "\x00")
		if judge == "1" && mine == "0" && globMatch(latin1(p), latin1(s), false) {
			return "glibc compares bytes where no character fits"
		}
		if strings.Contains(q.text, "[.") || strings.Contains(q.text, "[=") {
			return "collating elements"
		}
	case 'A', 'R':
		// systemd reports only that the condition does not hold.
		if judge == "0" && mine == "no" {
			return "conditions that can never hold"
		}
	}
	return ""
}

// latin1 makes a character of each byte.
func latin1(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteRune(rune(c))
	}
	return b.String()
}

// makers make random inputs of each kind.
var makers = map[byte]func(r *rand.Rand) string{
	'L': func(r *rand.Rand) string {
		return pieces(r, 14, "[S]", "[Match]", "[S", "]", "[", "k=v", "Key", "=", " = ", " ", "\t", "\n", "\n", "\n", "\r\n",
			"\r", "\\\n", "\\\n", "\\\\", "\\", "# c", "; "+
				"c", "#", "\x00", "\ufeff", "é", "\xff", "\xc3", "\ufffd", "\ufffe", "\U0010ffff",
			"\xed\xa0\x80", "\"", "'", "\x01", "\x7f", "\v", "\f", ".include x", "X-a=b", "\n[T]\n", "a=b\n")
	},
	'B': func(r *rand.Rand) string {
		return pieces(r, 3, "1", "0", "y", "e", "s", "yes", "no", "true", "false", "t", "f", "on", "off", "n", "Y", "ON", " ", "")
	},
	'T': func(r *rand.Rand) string {
		return pieces(r, 7, "0", "1", "2", "12", "5", "9", "3", ".", ".", " ", " ", "s", "ms", "us", "µs", "μs", "ns", "min",
			"m", "h", "hr", "d", "w", "M", "months", "month", "y", "years", "sec", "second", "seconds", "usec",
			"msec", "+", "-", "infinity", "x", "\t", "\v", "18446744073709551615", "9223372036854775807", "584542", "293")
	},
	'S': func(r *rand.Rand) string {
		return pieces(r, 6, "0", "1", "2", "12", "5", "9", "1024", ".", ".", " ", "B", "K", "M", "G", "T", "P", "E", "k", "+",
			"-", "x", "\t", "18446744073709551615", "18446744073709551616", "16", "15", "9223372036854775807")
	},
	'M': func(r *rand.Rand) string {
		return pieces(r, 4, "0", "67", "68", "1500", "65520", "2", "4", "K", "M", "G", ".", " ", "+", "-", "x", "4294967295",
			"4294967296", "2147483647", "2147483648")
	},
	'U': func(r *rand.Rand) string {
		return pieces(r, 4, "0", "1", "7", "8", "9", "0x", "0X", "0b", "0o", "010", "ff", "_", "+", "-", " ", "\t", "x",
			"4294967295", "4294967296", "18446744073709551615", "18446744073709551616")
	},
	'V': func(r *rand.Rand) string {
		p := []string{"1", "2", "10", "0", "01", ".", "-", "~", "^", "_", "a", "B", "rc", " ", "é", "+"}
		return pieces(r, 7, p...) + "\x00" + pieces(r, 7, p...)
	},
	'G': func(r *rand.Rand) string {
		return pieces(r, 6, "*", "*", "?", "[ab]", "[!a]", "[^a]", "[a-c]", "[]a]", "[", "]", "-", "\\", "\\*", "a", "b", "c",
			"é", "[[:alpha:]]", "[[:digit:]b]", "/", ".", "[é-ü]", "[a-", "\\[") + "\x00" +
			pieces(r, 5, "a", "b", "c", "d", "*", "?", "[", "]", "\\", "-", "é", "ü", "1", "/", ".", "!")
	},
	'K': func(r *rand.Rand) string {
		return pieces(r, 8, "foo", "bar", "=", " ", " ", "\"", "'", "\\", "\t", "\n", "a", "foo=bar baz") + "\x00" +
			pieces(r, 4, "foo", "bar", "=", " ", "\"", "'", "\\", "a", "foo=bar baz")
	},
	'R': func(r *rand.Rand) string {
		return pieces(r, 5, ">=", "<=", "<", ">", "=", "!=", " ", " ", "4", "99", "6.1", "*", "\"", "'", "\\", "[4-9]*", "a")
	},
	'A': func(r *rand.Rand) string {
		return pieces(r, 1, "x86-64", "x86", "arm64", "native", "ppc64-le", "s390x", "riscv64", "x86_64", "X86-64", "",
			"nonsense", "mips-le")
	},
	'H': func(r *rand.Rand) string {
		h, _ := os.Hostname()
		return pieces(r, 3, "*", "?", "a", h, strings.ToUpper(h), h[:len(h)/2], "[a-z]", "0123456789abcdef0123456789abcdef", "!")
	},
}

func pieces(r *rand.Rand, most int, ps ...string) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString(ps[r.IntN(len(ps))])
	}
	return b.String()
}

// fixed are inputs that random generation hardly finds.
var fixed = []question{
	{'T', "12.34.56"}, {'T', "12..34"}, {'T', "3. 1s"}, {'T', "+3.1s"}, {'T', "5s +1s"}, {'T', "12.34 .56"}, {'T',
		"1y 12month"}, {'T', "0.-0"}, {'T', "3.+1"}, {'T', "infinity x"}, {'T', " infinity "},
	{'T', "5 parsecs"}, {'T', "1h30"}, {'T', "55s500ms"}, {'T', ".5"}, {'T', "."}, {'T', "s"}, {'T', "1.5µs"}, {'T',
		"584542y"}, {'T', "293y"},
	{'S', "1K.5"}, {'S', ".5K"}, {'S', "10.M"}, {'S', "+1K"}, {'S', "1K "}, {'S', "1G 1K 5"}, {'S', "1K 1G"}, {'S',
		"1.99999999999999999999K"}, {'S', "16E"}, {'S', "15.9E"}, {'S', "9223372036854775807"},
	{'U', " -0"}, {'U', "-1"}, {'U', "0o17"}, {'U', "0b11"}, {'U', "017"}, {'U', "08"},
	{'K', "a foo=\"bar baz\" b\x00foo=bar baz"}, {'K', "a 'foo=bar baz' b\x00foo=bar baz"}, {'K', "foo=\"bar\x00foo=bar"}, {'K',
		"fo\\o=1\x00foo"}, {'K', "\x00"},
	{'L', "#c\n\ufeff[S]\na=1\n"}, {'L', "[S]\n\ufeffa=1\n\ufeffb=2\n"}, {'L', "[S]\na=\\\n\ufeffb\n"}, {'L',
		"[S\"]\na=b\n"}, {'L', "[S\\x]\n"}, {'L', "[S'a]\n"}, {'L', "[S]\na=\ufdd0\n"},
}

// longLines makes lines of about 1 MiB, continued and not.
func longLines() (qs []question) {
	for d := -4; d <= 4; d++ {
		half := strings.Repeat("x", maxLine/2)
		qs = append(qs,
			question{'L', "[S]\na=" + strings.Repeat("x", maxLine-2+d) + "\nb=c\n"},
			question{'L', "[S]\na=" + half + "\\\n" + (half + "xxxxxxxx")[:maxLine/2-3+d] + "\nb=c\n"})
	}
	return qs
}

// TestSystemdIsTheJudge compares the lexer and the parsers of values, conditions
// and globs with the functions of the installed systemd on random inputs.
func TestSystemdIsTheJudge(t *testing.T) {
	exe := buildJudge(t)
	n := 10000
	if *long {
		n = 100000
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	hostname, _ := os.Hostname()
	seeds := corpusTexts(t)
	for kind, maker := range makers {
		t.Run(string(kind), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(kind)))
			var qs []question
			for _, q := range fixed {
				if q.kind == kind {
					qs = append(qs, q)
				}
			}
			if kind == 'L' {
				qs = append(qs, longLines()...)
			}
			for len(qs) < n {
				text := maker(r)
				if kind == 'L' && r.IntN(2) == 0 {
					text = mutate(r, seeds[r.IntN(len(seeds))])
				}
				if kind != 'L' && !utf8.ValidString(text) {
					continue
				}
				// A condition comes without blanks around it and is not empty.
				if _, cond, line := strings.Cut(text, "\x00"); kind == 'K' && line && strings.Trim(cond, blanks) != cond ||
					kind == 'K' && cond == "" {
					continue
				}
				if strings.IndexByte("RAH", kind) >= 0 && (text == "" || strings.Trim(text, blanks) != text) {
					continue
				}
				qs = append(qs, question{kind, text})
			}
			reasons := map[string]int{}
			bad := 0
			for i, judge := range ask(t, exe, qs) {
				mine := ours(qs[i], release, hostname)
				if mine == judge {
					continue
				}
				if why := explained(qs[i], judge, mine); why != "" {
					reasons[why]++
					continue
				}
				if bad++; bad <= 20 {
					t.Errorf("%.200q: systemd %.200q, here %.200q", qs[i].text, judge, mine)
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d differ without a reason", bad, len(qs))
			}
			t.Logf("%d inputs, differences on purpose: %v", len(qs), reasons)
		})
	}
}

// mutate cuts, doubles and exchanges bytes of a text.
func mutate(r *rand.Rand, s string) string {
	b := []byte(s)
	for range r.IntN(4) + 1 {
		if len(b) == 0 {
			break
		}
		i := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b = append(b[:i], b[i+1:]...)
		case 1:
			b[i] = byte(r.IntN(256))
		case 2:
			b = b[:i]
		case 3:
			b = append(b[:i], append([]byte{b[i]}, b[i:]...)...)
		default:
			b[i] = "\n\r\\=[]#;\x00 "[r.IntN(10)]
		}
	}
	return string(b)
}
