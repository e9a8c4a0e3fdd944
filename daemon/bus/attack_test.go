package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn/bustest"
)

// Whatever a member of the bus sends to the daemon, by its name or its unique name,
// as a call or a signal: it answers, and has no more descriptors than before.
func TestHostileMember(t *testing.T) {
	b := startBus(t)
	_, f := serve(t, b, func(uint32) bool { return true })
	c := b.Dial()
	var owner string
	if err := c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, api.BusName).Store(&owner); err != nil {
		t.Fatal(err)
	}
	before := bustest.Descriptors(t)
	b.Send(c, owner, api.Root, api.Manager, "GetLink")
	b.Send(c, api.BusName, api.Root, api.Manager, "Describe")
	b.Send(c, api.BusName, "/org/ibnetwork1/link/_37", "org.freedesktop.DBus.Properties", "Get")
	b.Send(c, api.BusName, "/", "a.b", "C")
	if n := bustest.Descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	var text, now string
	if err := c.Object(api.BusName, api.Root).Call(api.Manager+".Describe", 0).Store(&text); err != nil {
		t.Error(err)
	}
	if err := c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, api.BusName).Store(&now); err != nil || now != owner {
		t.Errorf("the name was %s's and is %s's: %v", owner, now, err)
	}
	if calls := f.called(); len(calls) > 0 {
		t.Errorf("the daemon has done %q", calls)
	}
}

// Arguments that no method has are refused with a sentence, and nothing is done.
func TestArgumentsAreRefused(t *testing.T) {
	b := startBus(t)
	_, f := serve(t, b, func(uint32) bool { return true })
	c := b.Dial()
	for _, tc := range []struct {
		path   dbus.ObjectPath
		method string
		args   []any
		name   string
		text   string
	}{
		{api.Root, api.Manager + ".Reload", []any{[]dbus.Variant{dbus.MakeVariant(byte(1))}}, api.ErrInvalidArgs, `the signature "av", it should be ""`},
		{api.Root, api.Manager + ".Reload", []any{"x"}, api.ErrInvalidArgs, `the signature "s", it should be ""`},
		{api.Root, api.Manager + ".Reconfigure", []any{uint32(7)}, api.ErrInvalidArgs, `the signature "u", it should be "s"`},
		{"/org/ibnetwork1/link/_37", api.Link + ".Reconfigure", []any{uint32(7)}, api.ErrInvalidArgs, `the signature "u", it should be ""`},
		{"/org/ibnetwork1/link/_37", api.Link + ".Up", []any{"ib0"}, api.ErrInvalidArgs, `the signature "s", it should be ""`},
		{api.Root, api.Manager + ".Reconfigure", []any{strings.Repeat("x", 5000)}, errLimits, "at most 4096"},
		{api.Root, api.Manager + ".Nothing", []any{uint32(7)}, api.ErrInvalidArgs, "strings only"},
		{api.Root, "org.freedesktop.DBus.Properties.Set", []any{api.Manager, "LogLevel", dbus.MakeVariant("debug")}, "org.freedesktop.DBus.Error.PropertyReadOnly", "read-only"},
	} {
		err := c.Object(api.BusName, tc.path).Call(tc.method, 0, tc.args...).Err
		var de dbus.Error
		if !errors.As(err, &de) || de.Name != tc.name || !strings.Contains(de.Error(), tc.text) {
			t.Errorf("%s: %v (%s)", tc.method, err, de.Name)
		}
	}
	if calls := f.called(); len(calls) > 0 {
		t.Errorf("the daemon has done %q", calls)
	}
}

// Megabytes of arguments are refused without being decoded or kept. Not more of
// them: the bus checks each.
func TestLargeArguments(t *testing.T) {
	b := startBus(t)
	serve(t, b, nil)
	r := b.Raw()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	body := bytes.Repeat([]byte{1, 'y', 0, 1}, 8<<20/4)
	body = append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
	frames := [][]byte{
		r.Frame(dbus.TypeMethodCall, 0, api.BusName, api.Root, api.Manager, "Reload", "av", body),
		r.Frame(dbus.TypeSignal, 0, api.BusName, api.Root, api.Manager, "Reload", "av", body),
	}
	c := b.Dial()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, f := range frames {
		if _, err := r.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := c.Object(api.BusName, api.Root).Call(api.Manager+".GetLink", 0, "ib0").Err; err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	time.Sleep(200 * time.Millisecond) // the other connection's messages may come behind
	runtime.ReadMemStats(&after)
	used := (after.TotalAlloc - before.TotalAlloc) >> 10
	t.Logf("two messages of 8 MB: %d kB allocated, the next call is answered after %v", used, took)
	if used > 2<<10 {
		t.Errorf("%d kB are allocated for arguments that are refused", used)
	}
}

// A user who calls more than is theirs is refused, and root is not.
func TestCallsOfUsersAreLimited(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, func(uint32) bool { return false })
	flood := func(c *dbus.Conn, n int) (refused int) {
		t.Helper()
		const window = 50 // the bus has a limit of its own
		done := make(chan *dbus.Call, n)
		for i := range n + window {
			if i < n {
				c.Object(api.BusName, api.Root).Go(api.Manager+".GetLink", 0, done, "ib0")
			}
			if i < window {
				continue
			}
			call := <-done
			var de dbus.Error
			if errors.As(call.Err, &de) && de.Name == errLimits {
				refused++
			} else if call.Err != nil {
				t.Error(call.Err)
			}
		}
		return refused
	}
	start := time.Now()
	var refused int
	for range 4 { // connections of one user share what it may ask for
		refused += flood(b.Dial(), 1000)
	}
	served := 4000 - refused
	if most := userBurst + int(userRate*(time.Since(start).Seconds()+1)); served > most || served < userBurst/2 {
		t.Errorf("%d of 4000 calls are answered in %v, want about %d", served, time.Since(start), userBurst)
	}
	// What is known of callers is the only thing that changes for root.
	s.callers.mu.Lock()
	for name, u := range s.callers.users {
		u.privileged = true
		s.callers.users[name] = u
	}
	s.callers.mu.Unlock()
	root := b.Dial()
	s.callers.mu.Lock()
	s.callers.users[root.Names()[0]] = user{privileged: true}
	s.callers.mu.Unlock()
	if n := flood(root, 2000); n != 0 {
		t.Errorf("%d calls of root are refused", n)
	}
}

// The calls of one user do not use up those of another, and all users together
// have a limit.
func TestShares(t *testing.T) {
	c := newCallers()
	spend := func(uid uint32, n int) (ok int) {
		for range n {
			if c.charge(user{uid: uid}, 1) == nil {
				ok++
			}
		}
		return ok
	}
	const slack = 50 // the clock runs
	if n := spend(1, 1000); n < userBurst || n > userBurst+slack {
		t.Errorf("one user: %d", n)
	}
	if n := spend(2, 10); n != 10 {
		t.Errorf("another: %d of 10", n)
	}
	all := 0
	for uid := range uint32(20) {
		all += spend(100+uid, 1000)
	}
	if all > totalBurst+slack {
		t.Errorf("twenty users: %d", all)
	}
	if err := c.charge(user{uid: 0, privileged: true}, 1); err != nil {
		t.Error(err)
	}
	// What is kept of callers is bounded.
	for i := range uint32(3 * maxKnown) {
		id := callID{string(rune('a'+i%26)) + time.Duration(i).String(), i}
		_ = c.arrived(id, 1)
		c.identify(id, func() (user, error) { return user{uid: i}, nil })
	}
	if u := c.identify(callID{"nobody", 1}, func() (user, error) { return user{privileged: true}, errors.New("no answer") }); u.privileged || u.uid != noUser {
		t.Errorf("a caller that is not known is %+v", u)
	}
	if len(c.users) > maxKnown || len(c.unknown) != 0 {
		t.Errorf("%d callers, %d calls", len(c.users), len(c.unknown))
	}
	for i := range uint32(2 * maxUnknown) {
		_ = c.arrived(callID{"x", i}, 1)
	}
	if len(c.unknown) > maxUnknown {
		t.Errorf("%d calls of callers that are not known", len(c.unknown))
	}
}
