// Package answertest checks what ibnetctl prints with --json against the forms of
// package answer, as a JSON Schema.
package answertest

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"ibnetworkd/cmd/ibnetctl/answer"
)

// JSONSchema is all forms as a JSON Schema (2020-12): the definition of a
// command is #/$defs/ and the name of its type.
func JSONSchema() map[string]any {
	defs := map[string]any{}
	var forms []map[string]string
	for _, f := range answer.Forms {
		t := reflect.TypeOf(f.Value)
		SchemaOf(t, defs)
		forms = append(forms, map[string]string{"$ref": "#/$defs/" + name(t), "description": "ibnetctl --json " + f.Command})
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "What ibnetctl prints with --json",
		"anyOf":   forms,
		"$defs":   defs,
	}
}

// name is the definition's name: types of different packages may share one.
func name(t reflect.Type) string {
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	if pkg == "answer" {
		return t.Name()
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + t.Name()
}

// TextMarshaler is the interface of types that are strings in JSON.
var TextMarshaler = reflect.TypeFor[encoding.TextMarshaler]()

// SchemaOf is the schema of a type; structs go into defs, by the names of the
// definitions. It panics on a kind of type that no form has.
func SchemaOf(t reflect.Type, defs map[string]any) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Implements(TextMarshaler):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Pointer:
		return SchemaOf(t.Elem(), defs)
	case reflect.Slice:
		// An empty list of an optional kind may be null.
		return map[string]any{"type": []string{"array", "null"}, "items": SchemaOf(t.Elem(), defs)}
	case reflect.Struct:
		n := name(t)
		ref := map[string]any{"$ref": "#/$defs/" + n}
		if defs[n] != nil {
			return ref
		}
		def := map[string]any{"type": "object"}
		defs[n] = def
		props, required := map[string]any{}, []string{}
		// reflect.VisibleFields has those of embedded structs, too, as JSON does.
		for _, f := range reflect.VisibleFields(t) {
			if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" {
				continue
			}
			key, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "-" || !f.IsExported() {
				continue
			}
			key = cmp.Or(key, f.Name)
			props[key] = SchemaOf(f.Type, defs)
			if !strings.Contains(opts, "omit") {
				required = append(required, key)
			}
		}
		def["properties"], def["required"] = props, required
		return ref
	}
	panic(fmt.Sprintf("answertest: no schema for %v", t))
}

// Check reports where text is not of the form that the command prints, as the
// schema has it.
func Check(command string, text []byte) error {
	for _, f := range answer.Forms {
		if !slices.Contains(strings.Split(f.Command, ", "), command) {
			continue
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		root := JSONSchema()
		return check(root, root["$defs"].(map[string]any)[name(reflect.TypeOf(f.Value))].(map[string]any), v, name(reflect.TypeOf(f.Value)))
	}
	return fmt.Errorf("no schema of %q is documented", command)
}

func check(root, s map[string]any, v any, at string) error {
	if ref, ok := s["$ref"].(string); ok {
		return check(root, root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any), v, at)
	}
	types, many := s["type"].([]string)
	if !many {
		types = []string{s["type"].(string)}
	}
	is := kind(v)
	if !slices.Contains(types, is) && !(is == "integer" && slices.Contains(types, "number")) {
		return fmt.Errorf("%s is %s, not %s", at, is, strings.Join(types, " or "))
	}
	switch x := v.(type) {
	case []any:
		for i, e := range x {
			if err := check(root, s["items"].(map[string]any), e, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		props := s["properties"].(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(x)) {
			p, ok := props[k].(map[string]any)
			if !ok {
				return fmt.Errorf("%s.%s is not documented", at, k)
			}
			if err := check(root, p, x[k], at+"."+k); err != nil {
				return err
			}
		}
		for _, k := range s["required"].([]string) {
			if _, ok := x[k]; !ok {
				return fmt.Errorf("%s.%s is missing", at, k)
			}
		}
	case string:
		if s["format"] == "date-time" {
			if _, err := time.Parse(time.RFC3339Nano, x); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
	}
	return nil
}

// kind is JSON Schema's word for a decoded value.
func kind(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if x == float64(int64(x)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
