package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/testkit"
)

// polkit stands on the bus and grants one action.
type polkit struct{ grant string }

func (p polkit) CheckAuthorization(subject struct {
	Kind    string
	Details map[string]dbus.Variant
}, action string, _ map[string]string, _ uint32, _ string) (struct {
	A, B bool
	C    map[string]string
}, *dbus.Error) {
	var r struct {
		A, B bool
		C    map[string]string
	}
	r.A, r.C = action == p.grant && subject.Kind == "system-bus-name", map[string]string{}
	return r, nil
}

func TestPermission(t *testing.T) {
	b := startBus(t)
	_, f := serve(t, b, func(uint32) bool { return false })
	c := b.Dial()
	call := func(method string, args ...any) error {
		return c.Object(api.BusName, api.Root).Call(api.Manager+"."+method, 0, args...).Err
	}
	err := call("Reload")
	var de dbus.Error
	if !errors.As(err, &de) || de.Name != api.ErrAccessDenied || !strings.Contains(fmt.Sprint(de.Body), "polkit is not installed") {
		t.Errorf("without polkit: %v", err)
	}
	pk := b.Dial()
	testkit.NoError(t, pk.Export(polkit{grant: api.ActionReload}, "/org/freedesktop/PolicyKit1/Authority",
		"org.freedesktop.PolicyKit1.Authority"))
	if _, err := pk.RequestName("org.freedesktop.PolicyKit1", 0); err != nil {
		t.Fatal(err)
	}
	if err := call("Reload"); err != nil {
		t.Errorf("granted: %v", err)
	}
	for _, v := range [][]any{{"Reconfigure", "ib0"}, {"Up", "ib0"}, {"Down", "ib0"}, {"StartSubnetManager", "mlx5_0/1"},
		{"StopSubnetManager", "mlx5_0/1"}, {"SetLogLevel", "debug"}} {
		err := call(v[0].(string), v[1:]...)
		if !errors.As(err, &de) || de.Name != api.ErrAccessDenied || !strings.Contains(fmt.Sprint(de.Body), "polkit does not permit") {
			t.Errorf("%s: %v", v[0], err)
		}
	}
	set := func() error {
		return c.Object(api.BusName, api.LogControlPath).Call("org.freedesktop.DBus.Properties.Set", 0, api.LogControl, "LogLevel",
			dbus.MakeVariant("debug")).Err
	}
	if err := set(); !errors.As(err, &de) || de.Name != api.ErrAccessDenied || f.LogLevel() != slog.LevelInfo {
		t.Errorf("setting LogLevel: %v", err)
	}
	if err := call("Describe"); err != nil {
		t.Errorf("reading: %v", err)
	}
	if got := f.called(); len(got) != 1 || got[0] != "reload" {
		t.Errorf("the daemon was asked: %v", got)
	}
}

// slowPolkit grants each request when a person has typed the password.
type slowPolkit struct {
	asked  chan struct{}
	answer chan time.Time
}

func (p slowPolkit) CheckAuthorization(struct {
	Kind    string
	Details map[string]dbus.Variant
}, string, map[string]string, uint32, string) (r struct {
	A, B bool
	C    map[string]string
}, _ *dbus.Error) {
	p.asked <- struct{}{}
	<-p.answer
	r.A, r.C = true, map[string]string{}
	return r, nil
}

// Callers whose password is waited for do not keep out those that need none, and the
// time of a request begins when it is allowed.
func TestWaitingForPasswords(t *testing.T) {
	b := startBus(t)
	var root atomic.Bool
	s, f := serve(t, b, func(uint32) bool { return root.Load() })
	left := make(chan time.Time, 1)
	f.mu.Lock()
	f.reload = func(ctx context.Context) error {
		d, _ := ctx.Deadline()
		left <- d
		return nil
	}
	f.mu.Unlock()
	pk := b.Dial()
	p := slowPolkit{asked: make(chan struct{}), answer: make(chan time.Time)}
	testkit.NoError(t, pk.Export(p, "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority"))
	if _, err := pk.RequestName("org.freedesktop.PolicyKit1", 0); err != nil {
		t.Fatal(err)
	}
	// Each user may have some requests under way, on however many connections.
	reload := func(uid uint32) *dbus.Call {
		c := b.Dial()
		as(s, c, user{uid: uid})
		return c.Object(api.BusName, api.Root).Go(api.Manager+".Reload", dbus.FlagAllowInteractiveAuthorization, make(chan *dbus.Call, 1))
	}
	limit := func(what string, call *dbus.Call, words string) {
		t.Helper()
		var de dbus.Error
		if err := (<-call.Done).Err; !errors.As(err, &de) || de.Name != errLimits || !strings.Contains(fmt.Sprint(de.Body), words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var waiting []*dbus.Call
	for i := range uint32(maxAsks) {
		waiting = append(waiting, reload(1000+i/maxEach))
		<-p.asked
	}
	limit("one more of a user", reload(1000), "8 changes of user 1000")
	limit("one more of all", reload(2000), "64 at one time")
	root.Store(true)
	call := reload(2000)
	if err := (<-call.Done).Err; err != nil {
		t.Errorf("root, while %d others are asked for a password: %v", maxAsks, err)
	} else {
		<-left
	}
	allowed := time.Now()
	for range waiting {
		p.answer <- allowed
		if d := (<-left).Sub(allowed); d < verbTimeout {
			t.Errorf("a request has %v of %v left when it begins", d, verbTimeout)
		}
	}
}
