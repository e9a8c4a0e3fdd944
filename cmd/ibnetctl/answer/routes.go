package answer

// Explain is the path between two ports, there and back.
type Explain struct {
	Schema     int    `json:"schema"`
	OK         bool   `json:"ok"`     // packets arrive both ways
	Source     string `json:"source"` // the port that the fabric was read from, or the file
	Live       bool   `json:"live"`
	Engine     string `json:"engine,omitempty"` // absent where it is not known
	EngineNote string `json:"engine_note"`
	Paths      []Path `json:"paths"`
	// Partitions are those of both ports; Record is absent where there is none.
	Partitions []SharedPartition `json:"partitions"`
	Record     *PathRecord       `json:"path_record,omitempty"`
	Warnings   []string          `json:"warnings"`
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

// PathRecord is what the subnet administrator tells of the way there.
type PathRecord struct {
	MTU   int    `json:"mtu,omitempty"`
	Rate  string `json:"rate,omitempty"`
	PKey  string `json:"pkey"`
	SL    uint8  `json:"sl"`
	Asked bool   `json:"asked"` // it was asked; else it is computed
}
