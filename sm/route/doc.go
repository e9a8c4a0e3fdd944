// Package route computes linear forwarding tables of a fabric, and service levels
// where a topology needs them.
//
// It has the routing engines (fat-tree, up/down, minimum hop, dimension order, layers),
// the choice among them, and the proof that a set of tables cannot deadlock:
// CreditLoop searches for a cycle in the channel dependency graph (Dally and
// Seitz, 1987). The engine of the subnet manager calls Build once a sweep; sa walks
// the tables for path records.
//
// Everything is a pure function of the fabric and of the tables of the last
// sweep, which serve as a hint: an entry that is still a good choice stays, so
// that a cut link rewrites few blocks, and tables whose shape it breaks are patched. On large fabrics some steps use a second processor,
// with the same result.
package route
