package bus

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
)

// Without a bus root has the methods of the manager with their answers and errors, and no
// other user has any.
func TestControl(t *testing.T) {
	f := &fake{}
	s := New(Config{Backend: f, Version: "1.2"})
	s.PublishLinks([]link.Status{ib0()}, nil)
	s.PublishPorts([]link.PortStatus{port1()})
	call := func(uid uint32, iface, method string, args ...string) api.ControlAnswer {
		return s.Control(t.Context(), uid, api.ControlCall{Interface: iface, Method: method, Arguments: args})
	}
	for _, tc := range []struct {
		method string
		args   []string
		name   string // of the error
		text   string // of the error, or the call
	}{
		{"Reload", nil, "", "reload"},
		{"Renew", []string{"ib0"}, "", "renew ib0"},
		{"Reconfigure", []string{"ib0"}, "", "reconfigure ib0"},
		{"Up", []string{"ib0"}, "", "up=true ib0"},
		{"Down", []string{"ib0"}, "", "up=false ib0"},
		{"StartSubnetManager", []string{"mlx5_0/1"}, "", "start mlx5_0/1"},
		{"Renew", []string{"ib7"}, api.ErrNoSuchLink, `there is no link "ib7"`},
		{"Renew", nil, api.ErrInvalidArgs, "signature"},
		{"Reload", []string{"x"}, api.ErrInvalidArgs, "signature"},
		{"Nope", nil, "org.freedesktop.DBus.Error.UnknownMethod", "has no method Nope"},
		{"ListLinks", nil, api.ErrFailed, "not a string"},
	} {
		before := len(f.called())
		a := call(0, api.Manager, tc.method, tc.args...)
		if a.Error != tc.name || tc.name != "" && !strings.Contains(a.Text, tc.text) {
			t.Errorf("%s %q: %+v", tc.method, tc.args, a)
		}
		if did := f.called()[before:]; tc.name == "" && !slices.Equal(did, []string{tc.text}) || tc.name != "" && len(did) > 0 {
			t.Errorf("%s %q did %q", tc.method, tc.args, did)
		}
		if a := call(1000, api.Manager, tc.method, tc.args...); a.Error != api.ErrAccessDenied || !strings.Contains(a.Text, "use sudo") {
			t.Errorf("%s of another user: %+v", tc.method, a)
		}
	}
	a := call(0, api.Manager, "Describe")
	var d api.Description
	if len(a.Values) != 1 || json.Unmarshal([]byte(a.Values[0]), &d) != nil || len(d.Links) != 1 || d.Links[0].Name != "ib0" {
		t.Errorf("Describe: %+v", a)
	}
	if a := call(0, "org.freedesktop.DBus.Properties", "Get", api.Manager, "LogLevel"); !slices.Equal(a.Values, []string{"info"}) {
		t.Errorf("LogLevel: %+v", a)
	}
	busy := make(chan struct{})
	f.reload = func(ctx context.Context) error { <-busy; return ctx.Err() }
	ended := make(chan api.ControlAnswer, maxVerbs)
	for range maxVerbs {
		go func() { ended <- call(0, api.Manager, "Reload") }()
	}
	for len(s.verbs) < maxVerbs {
		runtime.Gosched()
	}
	if a := call(0, api.Manager, "Reload"); a.Error != "org.freedesktop.DBus.Error.LimitsExceeded" {
		t.Errorf("above the limit: %+v", a)
	}
	close(busy)
	for range maxVerbs {
		if a := <-ended; a.Error != "" {
			t.Errorf("%+v", a)
		}
	}
}
