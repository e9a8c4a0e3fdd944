package main

import (
	"ibnetworkd/daemon/plan"
	"ibnetworkd/roce"
)

// rooms are the planners that the daemon joins; a plan made here must be the
// daemon's plan.
func rooms() []plan.Room { return []plan.Room{roce.Room} }
