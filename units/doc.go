// Package units reads .ibnetwork unit files.
//
// It owns the text format (lexing with exact positions, drop-ins, masking,
// overriding), the one schema table of all sections and keys, the typed result,
// [Match] and the comparison of two loads. The daemon hands it the unit
// directories as fs.FS values and gets a Set; ibnetctl verify and cat use the
// same calls.
//
// The package is pure: it opens nothing but what the given file systems hold,
// knows no clock, and never panics on any bytes. Every problem of every file is
// reported at once with file:line:column and what is kept; one bad value never
// loses another, one bad file never loses another file.
//
// The rules are those of systemd.syntax(7) and systemd.network(5), so that a
// user of systemd-networkd knows them already; where this package differs
// on purpose, the key's documentation in the schema table says so.
package units

//go:generate go run ./gen ../docs/man/ibnetwork.5
