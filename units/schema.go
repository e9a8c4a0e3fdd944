package units

// SectionSpec describes one section of the unit file.
type SectionSpec struct {
	Name string
	// Doc is one or more sentences; in Schema only.
	Doc string
	// Repeat reports that every header makes a new object; plain sections merge.
	Repeat bool
	Keys   []Key

	// open gives the struct to fill and its header.
	open func(u *Unit) (any, *Section)
}

// Key describes one key of a section: what the parser does with it, and what
// the manual says of it.
type Key struct {
	Name string
	// Doc is one sentence or more. Doc, Default, Example and Syntax, where it is not
	// made of words or bounds, are in Schema only.
	Doc string
	// Syntax is the value's form with its unit and range: "BYTES|max".
	Syntax string
	// Values are the words that are possible, where there are such.
	Values []string
	// Default is the effect of leaving the key out.
	Default string
	// Example is a value that parses.
	Example string
	// List reports that assignments add and an empty one resets; otherwise the last
	// one wins and an empty one unsets.
	List bool
	// Networkd reports that systemd.network has the key in the same section with
	// the same meaning.
	Networkd bool
	// Since is the release that brought the key.
	Since string

	apply setter
	// essential keys make the section mean something else when they are missing,
	// so a bad value drops the section.
	essential bool
}

var (
	schema        = buildSchema()
	sectionByName = byName(schema)
)

func byName(sections []SectionSpec) map[string]*SectionSpec {
	out := make(map[string]*SectionSpec, len(sections))
	for i := range sections {
		out[sections[i].Name] = &sections[i]
	}
	return out
}

func (s *SectionSpec) key(name string) *Key {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

func sectionNames() []string {
	out := make([]string, len(schema))
	for i := range schema {
		out[i] = schema[i].Name
	}
	return out
}

// sectionsWith lists the other sections that have the key.
func sectionsWith(key, except string) []string {
	var out []string
	for i := range schema {
		if schema[i].Name != except && schema[i].key(key) != nil {
			out = append(out, schema[i].Name)
		}
	}
	return out
}
