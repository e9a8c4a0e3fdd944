package smctl

import "time"

// Status is the state of the subnet manager of one port, as D-Bus, JSON and metrics
// publish it.
type Status struct {
	PortGUID string `json:"port_guid"`
	IBDevice string `json:"ib_device"`
	Port     int    `json:"port"`
	// Manage and Engine are the unit's words; Unit is its path.
	Manage string `json:"manage"`
	Engine string `json:"engine"`
	Unit   string `json:"unit,omitempty"`
	// Phase is a stable word, Reason a sentence.
	Phase  Phase  `json:"phase"`
	Reason string `json:"reason"`
	// Next is what a person can do about it, a command or an imperative.
	Next string `json:"next,omitempty"`
	// NextCheck is when it is decided again although nothing happens.
	NextCheck time.Time `json:"next_check,omitzero"`
	// Worker is the systemd unit, WorkerState its state, empty if it is not known, and
	// WorkerSince since when.
	Worker      string    `json:"worker,omitempty"`
	WorkerState string    `json:"worker_state,omitempty"`
	WorkerSince time.Time `json:"worker_since,omitzero"`
	// WorkerText is what the program says of itself (STATUS= of sd_notify).
	WorkerText string `json:"worker_text,omitempty"`
	// FileProblem is what is wrong with a file that the unit's settings name.
	FileProblem string `json:"file_problem,omitempty"`
	// Override is "start" or "stop" when the administrator has overruled the unit.
	Override string `json:"by_hand,omitempty"`
	// Master is the subnet manager that answered last, MasterUnknown why it is not
	// known; ibnetctl asks where the daemon does not.
	Master        *Master `json:"master,omitempty"`
	MasterUnknown string  `json:"master_unknown,omitempty"`
	Starts        int     `json:"starts"`
}

// Master is the subnet manager that serves a port, in sminfo's words.
type Master struct {
	GUID     string `json:"guid"`
	LID      uint16 `json:"lid"`
	Priority uint8  `json:"priority"`
	State    string `json:"state"`
	// Node is the node description of its host.
	Node string `json:"node,omitempty"`
}
