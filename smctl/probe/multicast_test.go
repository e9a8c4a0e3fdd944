package probe

import (
	"testing"

	"ibnetworkd/lab/gen"
)

// A switch of which no multicast entry is used has no block to read.
func TestMulticastBlocks(t *testing.T) {
	for top, want := range map[uint16]int{0xbfff: 0, 0xc000: 1, 0xc01f: 1, 0xc020: 2} {
		f := gen.Star(2, 8).Clone()
		f.Switches[0].Info.SetMulticastFDBTop(top)
		r := readMFT{f: f}
		if got, _ := r.blocks(0); got != want {
			t.Errorf("top 0x%x: %d blocks, want %d", top, got, want)
		}
	}
}
