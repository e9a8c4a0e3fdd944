package discover

// ports are the ports of a node, which are made when they are asked for the first
// time: a NodeInfo claims 254 of them for nothing.
type ports struct {
	n     int // with port 0
	chunk []*[portChunk]dport
}

const portChunk = 8

func makePorts(n int) ports {
	return ports{n: n, chunk: make([]*[portChunk]dport, (n+portChunk-1)/portChunk)}
}

// grow adds ports.
func (t *ports) grow(n int) {
	more := makePorts(n)
	copy(more.chunk, t.chunk)
	*t = more
}

// at is a port to be read and written.
func (t *ports) at(p int) *dport {
	c := t.chunk[p/portChunk]
	if c == nil {
		c = new([portChunk]dport)
		for i := range c {
			c[i].peer = -1
		}
		t.chunk[p/portChunk] = c
	}
	return &c[p%portChunk]
}

// link is the other end of a port, a node and its port; the node is -1 without a link.
func (t *ports) link(p int) (int32, uint8) {
	if c := t.chunk[p/portChunk]; c != nil {
		return c[p%portChunk].peer, c[p%portChunk].peerP
	}
	return -1, 0
}

// get returns a copy of a port.
func (t *ports) get(p int) dport {
	if c := t.chunk[p/portChunk]; c != nil {
		return c[p%portChunk]
	}
	return dport{peer: -1}
}
