package api

// ControlSocket is the file in the daemon's directory where root calls the methods of the
// manager without a bus. A connection has one call and one answer, each a line of JSON.
const ControlSocket = "control.sock"

// MaxControlCall bounds the line of a call in bytes.
const MaxControlCall = 8 << 10

// ControlCall is a call of a method of the manager's object.
type ControlCall struct {
	Interface string   `json:"interface"`
	Method    string   `json:"method"`
	Arguments []string `json:"arguments,omitempty"`
}

// ControlAnswer is what the method returns, or its error with the name that it has on the bus.
type ControlAnswer struct {
	Values []string `json:"values,omitempty"`
	Error  string   `json:"error,omitempty"`
	Text   string   `json:"text,omitempty"`
}
