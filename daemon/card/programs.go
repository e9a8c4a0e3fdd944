package card

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ibnetworkd/roce"
)

// The programs that set what units here ask for too.
var (
	dcbAgents  = []string{"lldpad", "lldpd", "fcoemon"}
	descKeeper = "rdma-ndd"
)

// scanEach is how long the list of running programs is believed.
const scanEach = time.Minute

// runs notes which of the programs run that set the same values.
func (o *Observer) runs(st *roce.State, dcb, desc bool) {
	if !dcb && !desc {
		return
	}
	if o.programs == nil || time.Since(o.scanned) > scanEach {
		o.programs, o.scanned = o.scan(), time.Now()
	}
	for _, p := range o.programs {
		switch {
		case p == descKeeper && desc:
			st.NodeDescBy = p
		case p != descKeeper && dcb:
			st.Agents = append(st.Agents, p)
		}
	}
}

func (o *Observer) scan() []string {
	out := []string{}
	es, err := os.ReadDir(filepath.Join(o.root, "proc"))
	if err != nil {
		return out
	}
	for _, e := range es {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(o.root, "proc", e.Name(), "comm"))
		if err != nil {
			continue
		}
		c := strings.TrimSpace(string(b))
		if (slices.Contains(dcbAgents, c) || c == descKeeper) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}
