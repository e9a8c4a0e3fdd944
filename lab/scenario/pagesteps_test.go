package scenario

import (
	"regexp"
	"strings"
)

// pageStep is something that a page has its reader do.
type pageStep struct {
	line int    // of the page
	file string // the path of a file to write, "" for a command
	text string // the file's text, or the command
	lang string // of the block that it is from, "inline" for a span in a sentence
}

// pagePrograms begin the commands of the pages.
const pagePrograms = "ibnetctl systemctl journalctl ping ip modprobe nmcli rping mstconfig cat set ibstat sminfo apt dpkg " +
	"printf echo sudo lsinitramfs lsinitrd update-initramfs"

// pagePath is the comment that names a file.
var (
	pagePath = regexp.MustCompile(`^# (/[^ ]+)`)
	pageSpan = regexp.MustCompile("`([^`]+)`")
)

func isCommand(s string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return word != "" && strings.Contains(" "+pagePrograms+" ", " "+word+" ")
}

// pageSteps are the files and commands of a page in Markdown, in its order: the
// fenced blocks, and commands in the sentences. An ini block with a path in its
// first line is that file; one without is a fragment of the unit before it, or a
// unit where it has a [Match] section.
func pageSteps(page string) []pageStep {
	var out []pageStep
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		l := strings.TrimSpace(lines[i])
		lang, ok := strings.CutPrefix(l, "```")
		if !ok {
			if strings.HasPrefix(lines[i], "    ") && isCommand(l) {
				out = append(out, pageStep{i + 1, "", l, "sh"})
				continue
			}
			for _, m := range pageSpan.FindAllStringSubmatch(l, -1) {
				if isCommand(m[1]) && strings.Contains(m[1], " ") {
					out = append(out, pageStep{i + 1, "", m[1], "inline"})
				}
			}
			continue
		}
		begin := i + 1
		var block []string
		for i++; i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), "```"); i++ {
			block = append(block, lines[i])
		}
		switch {
		case lang == "ini":
			out = append(out, iniSteps(begin+1, block)...)
		case lang == "" || lang == "sh":
			prompts := strings.Contains("\n"+strings.Join(block, "\n"), "\n$ ")
			for k, b := range block {
				cmd := strings.TrimSpace(b)
				if rest, ok := strings.CutPrefix(cmd, "$ "); ok {
					cmd = rest
				} else if prompts {
					continue // what a command printed
				}
				if isCommand(cmd) {
					out = append(out, pageStep{begin + 1 + k, "", cmd, "sh"})
				}
			}
		}
	}
	return out
}

// iniSteps are the files of a block: two where two stand beside each other.
func iniSteps(line int, block []string) []pageStep {
	cut := -1
	if len(block) > 0 {
		if k := strings.Index(strings.TrimSpace(block[0])[1:], "# /"); k > 0 {
			cut = strings.Index(block[0], "# /") + k + 1
		}
	}
	column := func(from, to int) pageStep {
		s := pageStep{line: line, lang: "ini"}
		var text []string
		for i, l := range block {
			if to >= 0 && len(l) > to {
				l = l[:to]
			}
			if from > len(l) {
				l = ""
			} else {
				l = l[from:]
			}
			l = strings.TrimSpace(l)
			if m := pagePath.FindStringSubmatch(l); i == 0 && m != nil {
				s.file = m[1]
				continue
			}
			text = append(text, l)
		}
		s.text = strings.TrimSpace(strings.Join(text, "\n")) + "\n"
		return s
	}
	if cut > 0 {
		return []pageStep{column(0, cut), column(cut, -1)}
	}
	return []pageStep{column(0, -1)}
}
