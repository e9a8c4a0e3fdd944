package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/link"
)

// Name servers wait for systemd-resolved; the link does not. One that refuses them
// leaves the link configured, and another one is given them at once.
func TestDNSWithoutResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := system(t, 1), &notes{}
		var refuse error
		sys.fail = func(op link.Op) error {
			if _, dns := op.(link.SetDNS); dns {
				return refuse
			}
			return nil
		}
		r := launch(t, sys, n, map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.1/24\nDNS=10.0.0.53\n"})
		defer r.stop()
		resolved := func(name string) {
			sys.change(func(s *link.Snapshot) { s.Host.Resolved = name })
			r.Wake(Scope{Reload: true, RDMA: true})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		check := func(when string, code link.Code, ops int) {
			t.Helper()
			st := r.link("ib0")
			if st.State != link.StateConfigured || !st.Online || st.Reason().Code != code || code != link.CodeNone && st.Reason().Next == "" {
				t.Errorf("%s: ib0 is %s, online %v: %+v", when, st.State, st.Online, st.Reasons)
			}
			if got := sys.take(); strings.Count(strings.Join(got, "\n"), "resolvectl") != ops {
				t.Errorf("%s: %q", when, got)
			}
		}
		check("without resolved", link.CodeNoResolved, 0)
		resolved(":1.7")
		check("resolved came", link.CodeNone, 1)
		resolved("")
		check("resolved went", link.CodeNoResolved, 0)
		refuse = dbus.Error{Name: "org.freedesktop.resolve1.LinkBusy", Body: []any{"Link ib0 is managed."}}
		resolved(":1.8")
		check("resolved refuses", link.CodeResolved, 1)
		refuse = nil
		resolved(":1.9")
		check("another resolved", link.CodeNone, 1)
	})
}

// Each answer of systemd-resolved is one sentence with a next step, and none of
// them makes the link failed.
func TestResolvedErrors(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"org.freedesktop.resolve1.LinkBusy", "org.freedesktop.resolve1.NoSuchLink",
		"org.freedesktop.DBus.Error.UnknownMethod",
		"org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InvalidArgs", "org.freedesktop.DBus.Error.ServiceUnknown",
		"org.example.Other"} {
		v, why := classify(link.SetDNS{On: link.Target{Link: "ib0", Ifindex: 4}}, dbus.Error{Name: name, Body: []any{"its own words"}})
		if v != verdictRetry && v != verdictGiveUp || why.Code != link.CodeResolved || why.Next == "" ||
			!strings.Contains(why.Text, "its own words") || seen[why.Text] {
			t.Errorf("%s: %d %+v", name, v, why)
		}
		seen[why.Text] = true
	}
	for _, err := range []error{errSilent, errNoBus} {
		if v, why := classify(link.SetDNS{}, err); v != verdictRetry || why.Code != link.CodeResolved {
			t.Errorf("%v: %d %+v", err, v, why)
		}
	}
}
