package bus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// Whatever a member of the bus sends to the daemon, by its name or its unique name,
// as a call or a signal: it answers, and has no more descriptors than before.
func TestHostileMember(t *testing.T) {
	b := startBus(t)
	_, f := serve(t, b, func(uint32) bool { return true })
	c := b.Dial()
	var owner string
	testkit.NoError(t, c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, api.BusName).Store(&owner))
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
		{api.Root, api.Manager + ".Reload", []any{[]dbus.Variant{dbus.MakeVariant(byte(1))}}, api.ErrInvalidArgs,
			`the signature "av", it should be ""`},
		{api.Root, api.Manager + ".Reload", []any{"x"}, api.ErrInvalidArgs, `the signature "s", it should be ""`},
		{api.Root, api.Manager + ".Reconfigure", []any{uint32(7)}, api.ErrInvalidArgs, `the signature "u", it should be "s"`},
		{"/org/ibnetwork1/link/_37", api.Link + ".Reconfigure", []any{uint32(7)}, api.ErrInvalidArgs, `the signature "u", it should be ""`},
		{"/org/ibnetwork1/link/_37", api.Link + ".Up", []any{"ib0"}, api.ErrInvalidArgs, `the signature "s", it should be ""`},
		{api.Root, api.Manager + ".Reconfigure", []any{strings.Repeat("x", 5000)}, errLimits, "at most 4096"},
		{api.Root, api.Manager + ".Nothing", []any{uint32(7)}, api.ErrInvalidArgs, "strings only"},
		{api.Root, "org.freedesktop.DBus.Properties.Set", []any{api.Manager, "LogLevel", dbus.MakeVariant("debug")},
			"org.freedesktop.DBus.Error.PropertyReadOnly", "read-only"},
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
	testkit.NoError(t, c.Object(api.BusName, api.Root).Call(api.Manager+".GetLink", 0, "ib0").Err)
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
	root := b.Dial()
	as(s, root, user{privileged: true})
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
		id := callID{fmt.Sprint(":1.", i), i}
		if err := c.arrived(id, 1, false, func() (user, error) { return user{uid: i}, nil }); err != nil {
			t.Fatal(err)
		}
		if u, _ := c.userOf(id, 1); u.uid != i {
			t.Fatalf("%v is of user %d", id, u.uid)
		}
	}
	id := callID{"nobody", 1}
	_ = c.arrived(id, 1, false, func() (user, error) { return user{privileged: true}, errors.New("no answer") })
	if u, _ := c.userOf(id, 1); u.privileged || u.uid != noUser {
		t.Errorf("a caller that is not known is %+v", u)
	}
	if len(c.users) > maxKnown || len(c.waiting) != 0 || len(c.asked) != 0 {
		t.Errorf("%d callers, %d calls, %d questions", len(c.users), len(c.waiting), len(c.asked))
	}
}

// New callers cost one question each, and a few calls. What was answered before
// the user was known is charged with the answer.
func TestNewCallers(t *testing.T) {
	c := newCallers()
	asked, answer := 0, make(chan struct{})
	ask := func() (user, error) {
		asked++
		<-answer
		return user{uid: 7}, nil
	}
	arrive := func(sender string, serial uint32, answered bool) bool {
		return c.arrived(callID{sender, serial}, 20, answered, ask) == nil
	}
	for serial := range uint32(2 * maxFirst) {
		if ok := arrive(":1.1", serial, false); ok != (serial < maxFirst) {
			t.Errorf("call %d: %v", serial, ok)
		}
	}
	if arrive(":1.1", 0, false) {
		t.Error("one call comes twice")
	}
	if !arrive(":1.1", 1000, true) {
		t.Error("a call that is answered at once is refused")
	}
	for serial := range uint32(maxFirst) {
		go func() { _, _ = c.userOf(callID{":1.1", serial}, 20) }()
	}
	close(answer)
	left := func() error { // until all is charged: 400 at once
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.charge(user{uid: 7}, 1); err != nil {
			return err
		}
		return nil
	}
	for left() == nil {
		time.Sleep(time.Millisecond)
	}
	if asked != 1 {
		t.Errorf("the bus is asked %d times", asked)
	}
}

// The new connections of one user do not keep another's out.
func TestNewConnections(t *testing.T) {
	c := newCallers()
	never := func() (user, error) { select {} }
	for i := range 256 { // of one user, by default
		for serial := range uint32(100) {
			_ = c.arrived(callID{fmt.Sprint(":1.", i), serial}, 1, false, never)
		}
	}
	root := callID{":1.999", 1}
	if err := c.arrived(root, 1, false, func() (user, error) { return user{privileged: true}, nil }); err != nil {
		t.Fatal(err)
	}
	if u, err := c.userOf(root, 1); err != nil || !u.privileged {
		t.Errorf("%+v, %v", u, err)
	}
	if most := 256*maxFirst + 1; len(c.waiting) > most {
		t.Errorf("%d calls wait, at most %d", len(c.waiting), most)
	}
}

// Calls that are refused before they are read, and those of Peer, cost as others do.
func TestRefusedCallsAreCharged(t *testing.T) {
	b := startBus(t)
	serve(t, b, func(uint32) bool { return false })
	c := b.Dial()
	for _, call := range []func() error{
		func() error { return c.Object(api.BusName, api.Root).Call(api.Manager+".GetLink", 0, uint32(7)).Err },
		func() error { return c.Object(api.BusName, "/").Call("org.freedesktop.DBus.Peer.Ping", 0).Err },
	} {
		limited, start := false, time.Now()
		for n := 0; !limited && n < 20*userBurst; n++ {
			var de dbus.Error
			limited = errors.As(call(), &de) && de.Name == errLimits
		}
		if !limited {
			t.Errorf("%d calls in %v, and none is refused for their number", 20*userBurst, time.Since(start))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A user who calls for more than the bus keeps, and reads nothing, keeps others
// waiting for seconds only.
func TestAnswersAreNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := startBus(t, bustest.Limit{Name: "max_incoming_bytes", Value: 8 << 20})
	s, _ := serve(t, b, func(uint32) bool { return false })
	l := ib0()
	l.Problems = []string{strings.Repeat("x", 1<<20)}
	s.PublishLinks([]link.Status{l}, nil)
	r := b.Raw()
	for i := range 30 { // the bus keeps 8 MB and what the connection holds
		if _, err := r.Write(r.Frame(dbus.TypeMethodCall, 0, api.BusName, api.Root, api.Manager, "Describe", "", nil)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			time.Sleep(time.Second) // its user is known then
		}
	}
	c := b.Dial()
	start, slowest := time.Now(), time.Duration(0)
	for asked := time.Now(); time.Since(start) < 20*time.Second; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := c.Object(api.BusName, api.Root).CallWithContext(ctx, api.Manager+".GetLink", 0, "ib0").Err
		cancel()
		if err == nil {
			slowest = max(slowest, time.Since(asked))
			asked = time.Now()
		}
		time.Sleep(20 * time.Millisecond)
		if time.Since(asked) > 15*time.Second {
			t.Fatal("the daemon does not answer others any more")
		}
	}
	t.Logf("the slowest answer to another caller: %v", slowest.Round(time.Millisecond))
	if slowest < 2*time.Second {
		t.Error("the bus has not stopped reading: nothing was tried")
	}
}
