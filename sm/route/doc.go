// Package route decides which way packets go: it turns a fabric into linear
// forwarding tables, and service levels where a topology needs them.
//
// It owns the routing engines (fat-tree, up/down, minimum hop, dimension
// order), the choice among them, and the proof that a set of tables cannot
// deadlock: CreditLoop looks for a cycle in the channel dependency graph
// (Dally and Seitz, 1987). It never sends anything and never looks at how a
// switch was reached. The engine of the subnet manager calls Build once a
// sweep; sa walks the tables for path records.
//
// Everything is a pure function of the fabric and of the tables of the last
// sweep, which serve as a hint: an entry that is still a good choice stays, so
// that a cut link rewrites few blocks.
package route
