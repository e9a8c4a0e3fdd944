package answer_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/cmd/ibnetctl/answer/answertest"
	"ibnetworkd/internal/testkit"
)

var update = flag.Bool("update", false, "write generated files")

// The published schema and the page are what the types say.
func TestSchemaFiles(t *testing.T) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	testkit.NoError(t, e.Encode(answertest.JSONSchema()))
	golden(t, "../../../docs/ibnetctl.schema.json", b.String())

	var page strings.Builder
	page.WriteString(`# What ibnetctl prints with --json

<!-- Generated: go test ./cmd/ibnetctl/answer -update -->

With ` + "`--json`" + ` every command prints one JSON object on standard output; ` + "`monitor`" + ` and ` + "`logs`" + ` print one in each line. Keys may be added;
` + "`schema`" + `, now ` + fmt.Sprint(answer.Schema) + `, changes when a key goes or changes its meaning. A command that fails prints the last form below, its sentence
also goes to standard error, and the exit status is that of ` + "`ibnetctl`(1)" + `. A list may be ` + "`null`" + ` instead of empty. A ` + "`phase`" + ` is one of
those in ` + "`org.ibnetwork1`(5)" + `, or ` + "`unknown`" + ` without the bus. The same as a JSON Schema: [ibnetctl.schema.json](ibnetctl.schema.json).

`)
	seen := map[reflect.Type]string{}
	for _, f := range answer.Forms {
		fmt.Fprintf(&page, "## %s\n\n| key | type |\n|---|---|\n", f.Command)
		rows(&page, reflect.TypeOf(f.Value), f.Command, "", seen)
		page.WriteString("\n")
	}
	golden(t, "../../../docs/json.md", strings.TrimRight(page.String(), "\n")+"\n")
}

// rows are the keys of a struct, with those of the structs in it that seen has no place of.
func rows(b *strings.Builder, t reflect.Type, command, prefix string, seen map[reflect.Type]string) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" {
			if place := seen[f.Type]; place != "" {
				fmt.Fprintf(b, "| `%s…` | the keys of %s |\n", prefix, place)
			}
			continue
		}
		if len(f.Index) > 1 && seen[t.Field(f.Index[0]).Type] != "" {
			continue
		}
		key, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" || !f.IsExported() {
			continue
		}
		if key == "" {
			key = f.Name
		}
		s := answertest.SchemaOf(f.Type, map[string]any{})
		ft, what := f.Type, ""
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Slice && ft != reflect.TypeFor[json.RawMessage]() && !ft.Implements(answertest.TextMarshaler) {
			ft, what = ft.Elem(), "list of "
			s = answertest.SchemaOf(ft, map[string]any{})
		}
		inner, place := s["$ref"] != nil, seen[ft]
		switch {
		case place != "":
			what, inner = what+"object as "+place, false
		case inner:
			what += "object"
			seen[ft] = fmt.Sprintf("`%s%s` of %s", prefix, key, command)
		case s["format"] != nil:
			what += "time (RFC 3339)"
		default:
			what += fmt.Sprint(s["type"])
		}
		if strings.Contains(opts, "omit") {
			what += ", may be absent"
		}
		fmt.Fprintf(b, "| `%s%s` | %s |\n", prefix, key, what)
		if inner {
			rows(b, ft, command, prefix+key+".", seen)
		}
	}
}

func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		testkit.WriteFile(t, path, want)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what the types say (%v): go test ./cmd/ibnetctl/answer -update", path, err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ command, text, want string }{
		{"reload", `{"schema":1,"ok":true}`, ""},
		{"reload", `{"schema":1}`, "Done.ok is missing"},
		{"reload", `{"schema":1,"ok":true,"x":1}`, "Done.x is not documented"},
		{"reload", `{"schema":"1","ok":true}`, "Done.schema is string, not integer"},
		{"plan", `{"schema":1,"steps":[{"command":"x","link":3}],"blocked":null}`, "Plan.steps[0].link is integer, not string"},
		{"verify", `{"schema":1,"files":1,"problems":null,"notices":[{"unit":"u","code":"c","text":"t"}]}`, ""}, // of an embedded struct
		{"monitor", `{"at":"yesterday","kind":"","name":"","what":"","old":"","new":""}`, "Event.at: parsing time"},
		{"dance", `{}`, `no schema of "dance" is documented`},
	} {
		got := ""
		if err := answertest.Check(c.command, []byte(c.text)); err != nil {
			got = err.Error()
		}
		if got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s %s: %q, want %q", c.command, c.text, got, c.want)
		}
	}
}
