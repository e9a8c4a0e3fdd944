package gen

import (
	"fmt"
	"math/rand/v2"

	"ibnetworkd/sm/fabric"
)

// Kinds are the fabrics that Degraded degrades.
var Kinds = []string{"ft2", "ft3", "uneven", "dragonfly+", "hyperx", "torus", "random"}

// Degraded is a fabric of one of Kinds in a state as found in operation: 1 to 15
// percent of the cables between switches out, but none that would leave it in parts;
// some hosts off, a thin or an empty leaf, slow links. The kind is the seed modulo
// their number. The switches are all joined.
func Degraded(seed uint64) Case {
	r := rand.New(rand.NewPCG(seed, 11))
	kind := Kinds[seed%uint64(len(Kinds))]
	var f *fabric.Fabric
	switch kind {
	case "ft2":
		f = FatTree2(24, []int{4, 6, 8, 12, 24}[r.IntN(5)])
	case "ft3":
		f = FatTree3(8+2*r.IntN(3), 4+2*r.IntN(2), 2+r.IntN(4))
	case "uneven":
		for f == nil || !Whole(f) {
			leaves := 6 + r.IntN(12)
			f = Uneven(r.Uint64(), 24+12*r.IntN(2), leaves, 3+r.IntN(5), leaves*(6+r.IntN(6)))
		}
	case "dragonfly+":
		f = DragonFlyPlus(3+r.IntN(5), 2+r.IntN(3), 2+r.IntN(3), 1)
	case "hyperx":
		f = HyperX([]int{3 + r.IntN(3), 3 + r.IntN(3)}, 1+r.IntN(4))
	case "torus":
		if r.IntN(3) == 0 {
			f = Torus([]int{3 + r.IntN(2), 3 + r.IntN(3), 3}, 1+r.IntN(2))
		} else {
			f = Torus([]int{4 + r.IntN(4), 4 + r.IntN(4)}, 1+r.IntN(3))
		}
	case "random":
		f = RandomRegular(seed, 16+2*r.IntN(13), 3+r.IntN(6), 1+r.IntN(4))
	}
	name := fmt.Sprintf("%s %d", kind, seed)
	percent := float64(1 + r.IntN(15))
	if cut := CutCables(f, seed, percent); Whole(cut) {
		f = cut
		name += fmt.Sprintf(", %.0f%% out", percent)
	}
	switch r.IntN(5) {
	case 0:
		percent = float64(10 + r.IntN(81))
		f = HostsOff(f, seed, percent)
		name += fmt.Sprintf(", %.0f%% on", percent)
	case 1:
		keep := r.IntN(2)
		for range 1 + r.IntN(3) {
			// The manager's switch is the first.
			f = EmptyLeaf(f, 1+r.IntN(len(f.Switches)/2), keep)
		}
		name += fmt.Sprintf(", leaves with %d", keep)
	case 2:
		third, speed := r.IntN(3), 14
		if r.IntN(3) == 0 {
			speed = 1
		}
		f = Slow(f, func(s int) bool { return s%3 == third }, float64(5+r.IntN(60)), speed)
		name += ", slow links"
	}
	return Case{name, f}
}

// Whole reports whether the cables join all switches.
func Whole(f *fabric.Fabric) bool {
	seen := make([]bool, len(f.Switches))
	seen[0] = true
	queue := []int32{0}
	for i := 0; i < len(queue); i++ {
		first, count := f.PortRange(f.Switches[queue[i]].Node)
		for p := first; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None {
				if t := f.Nodes[f.Ports[q].Node].Switch; t != fabric.None && !seen[t] {
					seen[t] = true
					queue = append(queue, t)
				}
			}
		}
	}
	return len(queue) == len(seen)
}
