package route

import (
	"bytes"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// newTables has a piece of memory for each row: the garbage collector stops the whole
// program until a goroutine that fills or copies one large piece is done with it.
func newTables(g *graph) [][]uint8 {
	lft := make([][]uint8, g.n)
	for s := range lft {
		lft[s] = bytes.Repeat([]byte{NoPort}, g.top+1)
	}
	return lft
}

func cloneTables(lft [][]uint8) [][]uint8 {
	out := make([][]uint8, len(lft))
	for s := range out {
		out[s] = slices.Clone(lft[s])
	}
	return out
}

// wayPiece is about how much memory rows of ways share.
const wayPiece = 1 << 16

// newWays is the ways of an assignment that lead nowhere, with a row for each LID in dests.
func (g *graph) newWays() [][]uint8 {
	out := make([][]uint8, g.top+1)
	rows := 0
	for _, dests := range g.dests {
		rows += len(dests)
	}
	var piece []uint8
	for _, dests := range g.dests {
		for _, to := range dests {
			if len(piece) == 0 {
				piece = bytes.Repeat([]byte{NoPort}, g.n*min(rows, max(1, wayPiece/g.n)))
			}
			out[to.lid], piece = piece[:g.n:g.n], piece[g.n:]
			rows--
		}
	}
	return out
}

func (g *graph) copied(way [][]uint8) [][]uint8 {
	out := g.newWays()
	for lid, row := range way {
		copy(out[lid], row)
	}
	return out
}

// linkAt is the link of a switch at a place, None for NoPort.
func (g *graph) linkAt(s int32, place uint8) int32 {
	if place == NoPort {
		return fabric.None
	}
	return g.start[s] + int32(place)
}

// linkTowards is the link that a switch has to a LID, None for none.
func (a *assignment) linkTowards(s int32, lid ib.LID) int32 { return a.linkAt(s, a.way[lid][s]) }

// direct gives a switch a link to a LID.
func (a *assignment) direct(s int32, lid ib.LID, l int32) { a.way[lid][s] = uint8(l - a.start[s]) }

// waysOf is the ways of tables.
func (g *graph) waysOf(lft [][]uint8) [][]uint8 {
	out := g.newWays()
	for lid, way := range out {
		for s := range min(len(way), len(lft)) {
			if row := lft[s]; lid < len(row) {
				if l := g.linkOf[s<<8|int(row[lid])]; l != fabric.None {
					way[s] = uint8(l - g.start[s])
				}
			}
		}
	}
	return out
}

// tables is the forwarding tables with the ways.
func (a *assignment) tables() [][]uint8 {
	lft := newTables(a.graph)
	for d, dests := range a.dests {
		for _, to := range dests {
			lft[d][to.lid] = to.port
		}
	}
	for lid, way := range a.way {
		for s, place := range way {
			if place != NoPort {
				lft[s][lid] = a.port[a.start[s]+int32(place)]
			}
		}
	}
	return lft
}
