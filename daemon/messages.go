package daemon

import "ibnetworkd/internal/journal"

// The MESSAGE_IDs of the main events, as ibnetworkd(8) lists them.
const (
	msgLink      = "fd3cecd4a1c54143a5493cc8d99013c1" // a link's state
	msgPort      = "d52be19753da4162a8a03ddee6e17d82" // a port's state
	msgOperation = "9155c5b4eb7e4cd7b643c8cbdd055eaa" // an operation was carried out
	msgRefused   = "f624cb305792443f849c904604f044ca" // an operation was refused or failed
	msgUnits     = "89179968f8de4dd08e3ff371c4c8403c" // unit files changed
	msgProblem   = "915ebef9839345249416232d70382d72" // a mistake in a unit file
	msgNotice    = "e11a38104a4d4f25885b6a07e09f39ec" // a unit or the host as a whole
)

// as adds a message's id to the arguments of a log record.
func as(id string, args ...any) []any { return append(args, journal.MessageID, id) }
