// Package card is the shell of package roce: it reads the parts of a card that
// units ask for (port types, DCB, RDMA-CM's defaults, GID tables, virtual
// functions) and carries roce's operations out. It decides nothing. The daemon's
// observer and executor own an Observer; it belongs to their goroutine.
package card
