package units

// foreignSection says what does the work of a section that another program has,
// empty if no program is known to have it.
func foreignSection(name string) string {
	if why, ok := foreignSections[name]; ok {
		return "a section of systemd-networkd: " + why
	}
	return ""
}

// foreignKey is foreignSection for a key in one of our sections.
func foreignKey(section, key string) string {
	if why, ok := foreignKeys[section+"."+key]; ok {
		return "a key of systemd-networkd: " + why
	}
	return ""
}

// foreignElsewhere says which section of which file has the key.
func foreignElsewhere(key string) string { return "" }
