package card

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// dscpTable is the application table of a link by the rules of its driver: what the
// kernel lists, and what the card has.
type dscpTable struct {
	driver string
	list   []dcb.App
	card   map[uint16]uint8
	most   uint8 // the highest priority that the card takes
}

func (d *dscpTable) Get(string) (dcb.State, error) { return dcb.State{Apps: slices.Clone(d.list)}, nil }

func (d *dscpTable) AddApps(_ string, apps ...dcb.App) error {
	a := apps[0]
	_, has := d.card[a.Protocol]
	replaces := d.driver == "mlx5_core" || d.driver == "hns3"
	switch {
	case a.Priority > d.most, has && d.driver == "ice":
		return unix.EINVAL
	case slices.Contains(d.list, a):
		return unix.EEXIST
	case replaces:
		d.list = slices.DeleteFunc(d.list, func(b dcb.App) bool { return b.Protocol == a.Protocol })
	}
	d.list = append(d.list, a)
	d.card[a.Protocol] = a.Priority
	return nil
}

func (d *dscpTable) DelApps(_ string, apps ...dcb.App) error {
	i := slices.Index(d.list, apps[0])
	switch {
	case i < 0 && d.driver == "hns3":
		return unix.EINVAL
	case i < 0:
		return unix.ENOENT
	}
	d.list = slices.Delete(d.list, i, i+1)
	// bnxt clears the DSCP, whatever the priority of the entry was.
	delete(d.card, apps[0].Protocol)
	return nil
}

// Whatever its driver does with a second entry for a DSCP, the card ends with the new
// priority alone, or with the former one where it refuses the new one.
func TestMapDSCP(t *testing.T) {
	entry := func(prio uint8) dcb.App { return dcb.App{Selector: dcb.DSCP, Priority: prio, Protocol: 26} }
	for _, driver := range []string{"mlx5_core", "hns3", "bnxt_en", "ice"} {
		for name, tt := range map[string]struct {
			old  []dcb.App
			want uint8
			not  string
		}{
			"OK first":    {nil, 5, ""},
			"OK another":  {[]dcb.App{entry(3)}, 5, ""},
			"OK two":      {[]dcb.App{entry(3), entry(4)}, 5, ""},
			"bad refused": {[]dcb.App{entry(3)}, 7, "did not take the priority 7"},
		} {
			d := &dscpTable{driver: driver, list: slices.Clone(tt.old), card: map[uint16]uint8{}, most: 6}
			for _, a := range tt.old {
				d.card[26] = a.Priority
			}
			err := mapDSCP(d, "eth0", roce.MapDSCP{On: link.Target{Link: "eth0"}, DSCP: 26, Priority: tt.want}, tt.old)
			want := tt.want
			if tt.not != "" {
				want = tt.old[0].Priority
				if !errors.As(err, new(*NotTaken)) || !strings.Contains(err.Error(), tt.not) {
					t.Errorf("%s, %s: %v", driver, name, err)
				}
			} else if err != nil {
				t.Errorf("%s, %s: %v", driver, name, err)
			}
			if d.card[26] != want || !slices.Equal(d.list, []dcb.App{entry(want)}) {
				t.Errorf("%s, %s: the card has priority %d, the list is %v", driver, name, d.card[26], d.list)
			}
		}
	}
}
