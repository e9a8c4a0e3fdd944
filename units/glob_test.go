package units

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// naiveGlob is the definition of a glob, in exponential time.
func naiveGlob(p, s string) bool {
	if p == "" {
		return s == ""
	}
	switch p[0] {
	case '*':
		for i := 0; i <= len(s); i++ {
			if naiveGlob(p[1:], s[i:]) {
				return true
			}
		}
		return false
	case '?':
		return s != "" && naiveGlob(p[1:], s[1:])
	case '\\':
		if len(p) == 1 {
			return false
		}
		return s != "" && s[0] == p[1] && naiveGlob(p[2:], s[1:])
	case '[':
		body := p[1:]
		not := strings.HasPrefix(body, "!") || strings.HasPrefix(body, "^")
		if not {
			body = body[1:]
		}
		end := -1
		for i := 1; i < len(body); i++ {
			if body[i] == ']' {
				end = i
				break
			}
		}
		if end > 0 {
			if s == "" {
				return false
			}
			hit := false
			set := body[:end]
			for i := 0; i < len(set); i++ {
				if i+2 < len(set) && set[i+1] == '-' {
					hit = hit || set[i] <= s[0] && s[0] <= set[i+2]
					i += 2
				} else {
					hit = hit || set[i] == s[0]
				}
			}
			return hit != not && naiveGlob(body[end+1:], s[1:])
		}
	}
	return s != "" && p[0] == s[0] && naiveGlob(p[1:], s[1:])
}

func TestGlobAgainstNaive(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	pick := func(alphabet string, n int) string {
		b := make([]byte, rnd.IntN(n))
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return string(b)
	}
	for range 200000 {
		// Backslashes inside sets are for TestGlob: the model does not know them.
		p, s := pick("aab*?[]!-", 8), pick("aab/]-[", 7)
		if got, want := globMatch(p, s, false), naiveGlob(p, s); got != want {
			t.Fatalf("globMatch(%q, %q) = %v, want %v", p, s, got, want)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		p, s string
		fold bool
		want bool
	}{
		{"ib*", "ib0/x", false, true},
		{"*", "", false, true},
		{"?", "é", false, true},
		{"[é]", "é", false, true},
		{"[a-cx]0", "b0", false, true},
		{"[!a-c]0", "b0", false, false},
		{"[]a]", "]", false, true},
		{"[a\\]]", "]", false, true},
		{"[[:digit:]]x", "7x", false, true},
		{"[![:digit:]]x", "7x", false, false},
		{"a\\*", "a*", false, true},
		{"a\\*", "ab", false, false},
		{"a\\", "a\\", false, false},
		{"[ab", "[ab", false, true},
		{"NODE[0-9]", "node7", true, true},
		{"[A-C]", "b", true, true},
		{"x", "X", false, false},
		{"a\xff", "a\xff", false, true},
	} {
		if got := globMatch(tt.p, tt.s, tt.fold); got != tt.want {
			t.Errorf("globMatch(%q, %q, %v) = %v", tt.p, tt.s, tt.fold, got)
		}
	}
}

// TestGlobIsBounded has a pattern for which backtracking over every star would
// not end.
func TestGlobIsBounded(t *testing.T) {
	done := make(chan bool)
	go func() { done <- globMatch(strings.Repeat("*a", 500)+"b", strings.Repeat("a", 20000), false) }()
	select {
	case got := <-done:
		if got {
			t.Error("matched")
		}
	case <-time.After(time.Minute):
		t.Fatal("no end after a minute")
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("ib[0-9]*", "ib0")
	f.Add("[!a-", "x")
	f.Add("a\\", "a")
	f.Add("[[:alpha:]]", "q")
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 1024 || len(s) > 1024 {
			return
		}
		globMatch(p, s, false)
		globMatch(p, s, true)
		if !strings.ContainsAny(p, "*?[\\") && globMatch(p, s, false) != (p == s) {
			t.Errorf("a plain pattern %q against %q is not equality", p, s)
		}
	})
}
