// Package units reads .ibnetwork unit files.
//
// It has the lexer (with exact positions), drop-ins, masking and overriding, the
// schema table of all sections and keys, the typed result, [Match] and the
// comparison of two loads. The daemon passes the unit directories as fs.FS values
// and gets a Set; ibnetctl verify and cat make the same calls.
//
// The package is pure: it reads only the given file systems and no clock, and
// never panics, whatever the input. Every problem of every file is reported at
// once with file:line:column and what is kept; one bad value does not affect
// another, nor one bad file another file.
//
// The rules are those of systemd.syntax(7) and systemd.network(5); where this
// package differs on purpose, the key's documentation in the schema table says so.
package units

//go:generate go run ./gen ../docs/man/ibnetwork.5
