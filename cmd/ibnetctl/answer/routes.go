package answer

import "ibnetworkd/sm/control"

// Routes are the forwarding tables of a subnet manager: the engine, how many pairs of hosts
// use the busiest link, how many must at least, and why the engine is not ftree.
type Routes struct {
	Engine      string  `json:"engine"`
	Layers      int     `json:"service_levels,omitempty"`
	BusiestLink float64 `json:"busiest_link_flows"`
	AtBest      float64 `json:"busiest_link_at_best"`
	WhyNotTree  string  `json:"why_not_ftree,omitempty"`
	Words       string  `json:"-"`
}

// Explain is the path between two ports, there and back.
type Explain struct {
	Schema     int    `json:"schema"`
	OK         bool   `json:"ok"`     // packets arrive both ways
	Source     string `json:"source"` // the port that the fabric was read from, or the file
	Live       bool   `json:"live"`
	Engine     string `json:"engine,omitempty"` // absent where it is not known
	EngineNote string `json:"engine_note"`
	Hints      Hints  `json:"hints"`
	// Routes is what the subnet manager reports of its tables, absent where it is not on this host.
	Routes *Routes `json:"routes,omitempty"`
	Paths  []Path  `json:"paths"`
	// Partitions are those of both ports; Record is absent where there is none.
	Partitions []SharedPartition `json:"partitions"`
	Record     *PathRecord       `json:"path_record,omitempty"`
	Warnings   []string          `json:"warnings"`
}

// Hints are how many GUIDs a site names for its routes, as they were used.
type Hints struct {
	Known      bool   `json:"known"` // false where those of the manager are not known: the others are those given
	Note       string `json:"note"`  // where they are from, or why they are not known; may be empty
	Roots      int    `json:"roots"`
	Compute    int    `json:"compute_nodes"`
	IO         int    `json:"io_nodes"`
	HopWeights int    `json:"hop_weights"`
	HostOrder  int    `json:"host_order"`
	Drained    int    `json:"drained_switches"`
}

// Path is the way from one port to another.
type Path struct {
	From     string `json:"from"`
	FromGUID string `json:"from_guid"`
	To       string `json:"to"`
	ToGUID   string `json:"to_guid"`
	SLID     uint16 `json:"slid"`
	DLID     uint16 `json:"dlid"`
	SL       uint8  `json:"sl"`
	Hops     []Hop  `json:"hops"`
	Broken   string `json:"broken,omitempty"` // why packets do not arrive
	Next     string `json:"next,omitempty"`
}

// Hop is a link on the way.
type Hop struct {
	Node     string   `json:"node"`
	GUID     string   `json:"guid"`
	LID      uint16   `json:"lid,omitempty"` // of a switch
	Port     int      `json:"port"`
	Peer     string   `json:"peer"`
	PeerGUID string   `json:"peer_guid"`
	PeerPort int      `json:"peer_port"`
	Rate     string   `json:"rate,omitempty"`
	State    string   `json:"state,omitempty"`
	VL       uint8    `json:"vl"`
	Flows    int64    `json:"flows"` // pairs of hosts that use the link in this direction
	Why      string   `json:"why"`
	Choices  []Choice `json:"choices"`
}

// Choice is a port that a switch could have taken.
type Choice struct {
	Port  int   `json:"port"`
	Flows int64 `json:"flows"`
}

// SharedPartition is a partition of both ports.
type SharedPartition struct {
	PKey     string `json:"pkey"` // without the membership bit
	FromFull bool   `json:"from_full"`
	ToFull   bool   `json:"to_full"`
	Usable   bool   `json:"usable"` // one of them is a full member
}

// PathRecord is what the subnet administrator answers about the way there.
type PathRecord struct {
	MTU   int    `json:"mtu,omitempty"`
	Rate  string `json:"rate,omitempty"`
	PKey  string `json:"pkey"`
	SL    uint8  `json:"sl"`
	Asked bool   `json:"asked"` // it was asked; else it is computed
}

// WhatIf is what routes are before and after cables are cut and nodes go off.
type WhatIf struct {
	Schema     int    `json:"schema"`
	OK         bool   `json:"ok"`     // nothing is lost but what was named
	Source     string `json:"source"` // the port that the fabric was read from, or the file
	Live       bool   `json:"live"`
	EngineNote string `json:"engine_note"` // how the engine before is known
	Hints      Hints  `json:"hints"`
	// AtBest and the other figures are of all ordered pairs of host ports.
	Before RoutesSummary `json:"before"`
	After  RoutesSummary `json:"after"`
	Pairs  int           `json:"pairs"`       // of hosts that remain
	Moved  int           `json:"moved"`       // of these: with another path
	Lost   int           `json:"lost"`        // without a path, with one before
	Levels int           `json:"other_level"` // with another service level
	// Register is how many ports of hosts are asked to register again, because of that, by an SMP each.
	Register int `json:"register_again"`
	// Unreachable are ports of hosts and switches that are not off.
	Unreachable []string `json:"unreachable"`
	Entries     int      `json:"entries"`          // of forwarding tables that change
	Blocks      int      `json:"blocks"`           // that they are in
	Written     int      `json:"switches_written"` // that these are in
	SMPs        int      `json:"smps"`             // that write them, without multicast tables
	// Drained are the switches that were named with --drain.
	Drained  []control.Drain `json:"drained,omitempty"`
	Warnings []string        `json:"warnings"`
}

// RoutesSummary is what forwarding tables do. Flows count more on slower links.
type RoutesSummary struct {
	Engine     string   `json:"engine,omitempty"` // absent where it is not known
	Hosts      int      `json:"host_ports"`
	Switches   int      `json:"switches"`
	Links      int      `json:"links"`
	Worst      float64  `json:"busiest_link_flows"`
	WorstLink  string   `json:"busiest_link,omitempty"`
	AtBest     float64  `json:"busiest_link_at_least"` // no tables are below
	Mean       float64  `json:"mean_flows"`
	Hops       float64  `json:"mean_links"`
	Lost       int      `json:"pairs_without_path"`
	CreditLoop []string `json:"credit_loop"` // the ports of one
}

// Dump is a dump in one of opensm's formats.
type Dump struct {
	Schema int    `json:"schema"`
	Form   string `json:"form"`
	Text   string `json:"text"`
}

// Drains are the switches that routes avoid.
type Drains struct {
	Schema  int              `json:"schema"`
	OK      bool             `json:"ok"` // all are avoided
	Subnets []control.Drains `json:"subnets"`
}
