package plan_test

import (
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
)

// A link of an RDMA device that no unit matches has the file that cannot be used in its
// reason, for its unit may be in it; another link, and a file with a warning, have not.
func TestNoUnit(t *testing.T) {
	const path = "/etc/systemd/network/10-ib0.ibnetwork"
	for _, tt := range []struct{ name, text, ib0, next string }{
		{"bad byte", "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.1/24\xff\n", "no unit matches ib0, and " + path + " cannot be used",
			"ibnetctl verify " + path},
		{"OK another link's", "[Match]\nName=ib9\n[Network]\nAddres=10.0.0.1/24\n", "no unit matches ib0", ""},
	} {
		s := oneLink(t)
		s.Links = append(s.Links, link.Link{Index: 9, Name: "eth0", Type: 1, MTU: 1500})
		r := plan.Make(plan.Input{Snapshot: s, Units: load(t, map[string]string{"10-ib0.ibnetwork": tt.text}), Record: &link.Record{}})
		got := map[string]link.Reason{}
		for i := range r.Links {
			got[r.Links[i].Name] = r.Links[i].Reason()
		}
		if why := got["ib0"]; why.Code != link.CodeNoUnit || why.Text != tt.ib0 || why.Next != tt.next {
			t.Errorf("%s: %+v", tt.name, why)
		}
		if why := got["eth0"]; why.Text != "no unit matches eth0" || why.Next != "" {
			t.Errorf("%s: %+v", tt.name, why)
		}
	}
}
