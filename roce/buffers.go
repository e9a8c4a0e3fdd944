package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

func (p *planner) buffers(r *units.RoCE, d *DCB) {
	if len(r.BufferSize) == 0 && len(r.PriorityToBuffer) == 0 {
		return
	}
	if d.Buffer == nil {
		p.cannot("BufferSize", "", link.Reason{Code: CodeNoDCB, Text: fmt.Sprintf("the driver of %s has no receive buffers to set", p.l.Name)})
		return
	}
	want := *d.Buffer
	for _, s := range r.BufferSize {
		want.Size[s.V.Buffer&7] = s.V.Bytes
	}
	for _, m := range r.PriorityToBuffer {
		want.Buffer[m.V.From&7] = m.V.To & 7
	}
	a := link.Attribute{Name: "BufferSize", Wanted: want.String(), Actual: d.Buffer.String()}
	op := SetBuffers{On: p.on, Buffers: want}
	var sum uint64
	for _, s := range want.Size {
		sum += uint64(s)
	}
	if want.Total != 0 && sum > uint64(want.Total) {
		p.block(a, op, link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("the buffers of %s would need %d bytes, it has %d", p.l.Name, sum, want.Total),
			Next: "write smaller sizes in BufferSize=",
		})
		return
	}
	p.reach(a, taken(d, want), op)
}

// taken reports whether the receive buffers are as a unit asks for. Cards round
// sizes, mlx5 down to whole cells: what the driver made of the same request
// counts, and where nothing is known of a request, anything that is less than
// the largest cell away.
func taken(d *DCB, want Buffers) bool {
	have := *d.Buffer
	if have.Buffer != want.Buffer {
		return false
	}
	if d.Asked != nil {
		return have.Size == want.Size || d.Asked.Size == want.Size && d.Asked.Buffer == want.Buffer
	}
	for i := range have.Size {
		if max(have.Size[i], want.Size[i])-min(have.Size[i], want.Size[i]) >= cell {
			return false
		}
	}
	return true
}

// cell is more than any card's unit of receive buffers, in bytes (mlx5: 128 to
// 2048, from SBCAM).
const cell = 4096
