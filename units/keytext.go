package units

import (
	_ "embed"
	"strings"
)

// keyTexts is the manual's text of sections and keys, in the order of the table:
//
//	[Section]
//	    Sentences.
//
//	Key= SYNTAX
//	  default: the value without the key
//	  example: a value that parses
//	    Sentences.
//
// SYNTAX is absent where the table derives it from words or bounds.
//
//go:embed keys.txt
var keyTexts string

// Schema is the table of all sections and keys, in the order of the manual, with the
// manual's text. It is made by each call.
func Schema() []SectionSpec {
	out := buildSchema()
	section, key := -1, -1
	for line := range strings.Lines(keyTexts) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section, key = section+1, -1
		case line[0] != ' ':
			key++
			_, syntax, _ := strings.Cut(line, "= ")
			if k := &out[section].Keys[key]; k.Syntax == "" {
				k.Syntax = syntax
			}
		case key < 0:
			add(&out[section].Doc, line)
		default:
			k := &out[section].Keys[key]
			if v, ok := strings.CutPrefix(line, "  default: "); ok {
				k.Default = v
			} else if v, ok := strings.CutPrefix(line, "  example: "); ok {
				k.Example = v
			} else {
				add(&k.Doc, line)
			}
		}
	}
	return out
}

// add appends a line of text to a paragraph.
func add(text *string, line string) {
	*text = strings.TrimPrefix(*text+" "+strings.TrimLeft(line, " "), " ")
}
