package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/testkit"
)

// attackTime is how long TestAttack lasts: a few seconds, or what `make attack` asks for.
func attackTime(t *testing.T) time.Duration {
	text := os.Getenv("IBNET_ATTACK")
	if text == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("IBNET_ATTACK: %v", err)
	}
	return d
}

// What the daemon may use at most while it is attacked, and how long root may wait
// for an answer: the private bus has one queue for all.
const (
	attackMemory      = 200 << 20 // bytes
	attackDescriptors = 64
	attackAnswer      = 10 * time.Second
)

// The daemon, on a private bus and in a network namespace without links, against
// a user who sends everything that a bus forwards: it runs, is the same process on
// the same connection, answers root, and needs no more memory and descriptors.
func TestAttack(t *testing.T) {
	if addr := os.Getenv("IBNET_ATTACK_BUS"); addr != "" {
		assault(addr, attackTime(t))
		return
	}
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a namespace and another user")
	}
	d := attackTime(t)
	b := bustest.Start(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "ibnetworkd")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	testkit.NoError(t, err)
	defer logFile.Close()
	log := func() string { text, _ := os.ReadFile(logFile.Name()); return string(text) }
	daemon := exec.Command(program, "--unit-root="+dir, "--state-dir="+filepath.Join(dir, "state"))
	daemon.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+b.Addr)
	daemon.Stdout, daemon.Stderr = logFile, logFile
	daemon.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	testkit.NoError(t, daemon.Start())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	defer func() {
		_ = daemon.Process.Kill()
		<-ended
	}()
	root, err := busconn.Join(t.Context(), busconn.Config{Address: b.Addr}) // godbus' own way would not live either
	testkit.NoError(t, err)
	defer root.Close()
	owner := func() (name string) {
		_ = root.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, api.BusName).Store(&name)
		return name
	}
	for end := time.Now().Add(30 * time.Second); owner() == ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the daemon is not on the bus\n%s", log())
		}
	}
	name := owner()

	// The attackers are another process, of a user who may do nothing.
	self := attackerProgram(t)
	nobody := exec.Command(self, "-test.run=^TestAttack$", "-test.v", "-test.timeout=0")
	nobody.Env = append(os.Environ(), "IBNET_ATTACK_BUS="+b.Addr, "IBNET_ATTACK="+d.String())
	nobody.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	nobody.Dir = "/"
	var said strings.Builder
	nobody.Stdout, nobody.Stderr = &said, &said
	testkit.NoError(t, nobody.Start())
	over := make(chan error, 1)
	go func() { over <- nobody.Wait() }()

	var mem, fds, asked, again int
	var slowest time.Duration
	for going := true; going; {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon has ended: %v\n%s\n%s", err, tail(log()), said.String())
		case err := <-over:
			if err != nil {
				t.Fatalf("the attackers: %v\n%s", err, said.String())
			}
			going = false
		case <-time.After(200 * time.Millisecond):
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), attackAnswer)
		err := describe(ctx, root)
		for ; err != nil && ctx.Err() == nil; again++ { // the daemon may be joining again
			time.Sleep(100 * time.Millisecond)
			err = describe(ctx, root)
		}
		cancel()
		asked++
		slowest = max(slowest, time.Since(start))
		if err != nil {
			t.Errorf("root's Describe after %v: %v", time.Since(start), err)
		}
		mem, fds = max(mem, resident(daemon.Process.Pid)), max(fds, descriptors(daemon.Process.Pid))
	}
	lost := strings.Count(log(), "lost the bus")
	t.Logf("%v: root asked %d times, %d of them again, slowest answer %v; at most %d MB and %d descriptors; the bus joined again %d times",
		d, asked, again, slowest.Round(time.Millisecond), mem>>20, fds, lost)
	for line := range strings.Lines(said.String()) {
		if strings.HasPrefix(line, "{") {
			t.Logf("sent: %s", strings.TrimSpace(line))
		}
	}
	if mem > attackMemory || mem == 0 {
		t.Errorf("%d MB, at most %d", mem>>20, attackMemory>>20)
	}
	if fds > attackDescriptors || fds == 0 {
		t.Errorf("%d descriptors, at most %d", fds, attackDescriptors)
	}
	// Answers that are not read make the bus deaf to the daemon, which joins it
	// again then; nothing else ends a connection.
	if now := owner(); now == "" || now != name && lost == 0 {
		t.Errorf("the daemon's connection was %s and is %q\n%s", name, now, tail(log()))
	}
	if lost > 0 && !strings.Contains(said.String(), `"not read":`) {
		t.Errorf("the daemon has lost the bus:\n%s", tail(log()))
	}
}

func describe(ctx context.Context, c *busconn.Conn) error {
	return c.Object(api.BusName, api.Root).CallWithContext(ctx, api.Manager+".Describe", 0).Err
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// attackerProgram copies this test to where every user may run it.
func attackerProgram(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "attack")
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.NoError(t, os.Chmod(dir, 0o755))
	b := testkit.ReadFile(t, "/proc/self/exe")
	path := filepath.Join(dir, "attacker")
	testkit.NoError(t, os.WriteFile(path, b, 0o755))
	return path
}

// resident is the memory of a process in bytes, 0 if there is none.
func resident(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		var kb int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}

func descriptors(pid int) int {
	d, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(d)
}

// assault sends what it can for a time, and prints what it was.
func assault(addr string, d time.Duration) {
	seed := uint64(time.Now().UnixNano())
	fmt.Printf("seed %d\n", seed)
	var mu sync.Mutex
	sent := map[string]int{}
	count := func(what string, n int) {
		mu.Lock()
		defer mu.Unlock()
		sent[what] += n
	}
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range uint64(3) {
		all.Go(func() {
			a := attacker{addr: addr, r: rand.New(rand.NewPCG(seed, i)), count: count}
			for time.Now().Before(end) {
				a.once()
			}
		})
	}
	if d >= 2*deafTime { // in less time the bus keeps all answers
		all.Go(func() {
			for time.Until(end) > deafTime {
				deaf(addr, count)
			}
		})
	}
	all.Wait()
	b, _ := json.Marshal(sent)
	fmt.Println(string(b))
}

// deafTime is for how long a member calls and does not read.
const deafTime = 4 * time.Minute

// deaf has the bus keep answers, until it reads no more of them from the daemon.
func deaf(addr string, count func(string, int)) {
	r, err := bustest.Join(addr)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer r.Close()
	end := time.Now().Add(deafTime)
	_ = r.SetWriteDeadline(end)
	chunk := slices.Repeat(r.Frame(dbus.TypeMethodCall, 0, api.BusName, "/", "org.freedesktop.DBus.Peer", "Ping", "", nil), 200)
	for time.Now().Before(end) {
		if _, err := r.Write(chunk); err != nil {
			return
		}
		count("not read", 200)
	}
}

// attacker is one user's program.
type attacker struct {
	addr  string
	r     *rand.Rand
	count func(string, int)
}

// members are the methods and signals that mean something to the daemon.
var members = [][3]string{
	{api.Root, api.Manager, "Describe"}, {api.Root, api.Manager, "Reload"}, {api.Root, api.Manager, "Plan"},
	{api.Root, api.Manager, "GetLink"}, {api.Root, api.Manager, "Up"},
	{api.Root, api.Manager, "SetLogLevel"}, {api.Root, api.Manager, "StartSubnetManager"},
	{api.Root, "org.freedesktop.DBus.Properties", "GetAll"}, {api.Root, "org.freedesktop.DBus.Properties", "Set"},
	{api.LogControlPath, "org.freedesktop.DBus.Properties", "Set"},
	{api.Root, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"}, {"/", "org.freedesktop.DBus.Introspectable", "Introspect"},
	{"/", "org.freedesktop.DBus.Peer", "Ping"},
	{"/", "org.freedesktop.DBus.Peer", "GetMachineId"}, {"/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged"},
	{"/org/freedesktop/DBus", "org.freedesktop.DBus", "NameLost"},
	{"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "JobRemoved"},
	{"/org/freedesktop/systemd1/unit/x", "org.freedesktop.DBus.Properties", "PropertiesChanged"},
	{"/org/ibnetwork1/link/_31", api.Link, "Up"}, {"/nowhere", "no.such.Interface", "Nothing"},
}

// once joins the bus, does harm in one way, and leaves.
func (a *attacker) once() {
	r, err := bustest.Join(a.addr)
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	defer r.Close()
	gone := make(chan struct{})
	reads := a.r.IntN(4) > 0
	go func() {
		defer close(gone)
		if reads {
			_, _ = io.Copy(io.Discard, bufio.NewReader(r))
		}
	}()
	_ = r.SetWriteDeadline(time.Now().Add(5 * time.Second))
	dest := api.BusName
	if a.r.IntN(3) == 0 {
		// The daemon's connections are among the first ones of the bus.
		dest = fmt.Sprintf(":1.%d", a.r.IntN(8))
	}
	kind := dbus.TypeMethodCall
	if a.r.IntN(3) == 0 {
		kind = dbus.TypeSignal
	}
	m := members[a.r.IntN(len(members))]
	flags := dbus.Flags(a.r.IntN(8))
	send := func(what, sig string, body []byte) bool {
		_, err := r.Write(r.Frame(kind, flags, dest, m[0], m[1], m[2], sig, body))
		if err == nil {
			a.count(what, 1)
		}
		return err == nil
	}
	switch a.r.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6: // many messages of any signature
		for range 1 + a.r.IntN(30) {
			sig := a.signature()
			if !send("signatures", sig, a.body(sig)) {
				break
			}
			m = members[a.r.IntN(len(members))]
		}
	case 7, 8: // one large message
		n := 1 << (10 + a.r.IntN(15))
		sig := []string{"av", "as", "aay", "ay", "s", "a{ss}"}[a.r.IntN(6)]
		send(fmt.Sprintf("large %s", sig), sig, large(sig, n))
	case 9, 10, 11: // a flood
		frame := r.Frame(kind, flags, dest, m[0], m[1], m[2], "s", text("lo"))
		chunk := slices.Repeat(frame, 200)
		for range 1 + a.r.IntN(50) {
			if _, err := r.Write(chunk); err != nil {
				break
			}
			a.count("floods", 200)
		}
	case 12, 13, 14: // descriptors
		a.descriptors(dest, m)
	case 15, 16: // bytes that are no message, or only nearly
		frame := r.Frame(kind, flags, dest, m[0], m[1], m[2], "s", text("lo"))
		for range 1 + a.r.IntN(3) {
			frame[a.r.IntN(len(frame))] = byte(a.r.Uint32())
		}
		_, _ = r.Write(frame)
		a.count("broken", 1)
	case 17: // half a message
		frame := r.Frame(kind, flags, dest, m[0], m[1], m[2], "s", text("lo"))
		_, _ = r.Write(frame[:a.r.IntN(len(frame))])
		a.count("halves", 1)
	default: // what makes the daemon and polkit work
		m = members[1+a.r.IntN(5)]
		for range 1 + a.r.IntN(20) {
			sig, body := "", []byte(nil)
			if m[2] != "Reload" && m[2] != "Plan" {
				sig, body = "s", text("lo")
			}
			if !send("requests", sig, body) {
				break
			}
		}
	}
	if reads {
		// What was sent is read by the bus before the connection goes.
		time.Sleep(time.Duration(a.r.IntN(20)) * time.Millisecond)
	}
	_ = r.Close()
	if reads {
		<-gone
	}
}

// descriptors sends some, in each way that godbus encodes.
func (a *attacker) descriptors(dest string, m [3]string) {
	c, err := dbus.Connect(a.addr)
	if err != nil {
		return
	}
	defer c.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer null.Close()
	fd := dbus.UnixFD(null.Fd())
	bodies := [][]any{{fd}, {[]dbus.UnixFD{fd}}, {dbus.MakeVariant(fd)}, {fd, fd, fd, fd, fd, fd, fd, fd}, {map[string]dbus.UnixFD{"x": fd}}}
	for range 1 + a.r.IntN(40) {
		kind := dbus.TypeSignal
		if a.r.IntN(2) == 0 {
			kind = dbus.TypeMethodCall
		}
		c.Send(bustest.Message(kind, dest, dbus.ObjectPath(m[0]), m[1], m[2], bodies[a.r.IntN(len(bodies))]...), make(chan *dbus.Call, 1))
		a.count("descriptors", 1)
	}
	_ = c.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err // they have been read
}

const basic = "ybnqiuxtdsog"

// signature is a random one that is valid, of a few complete types.
func (a *attacker) signature() string {
	var s strings.Builder
	for range a.r.IntN(4) {
		s.WriteString(a.kind(0))
	}
	return s.String()
}

func (a *attacker) kind(depth int) string {
	one := string(basic[a.r.IntN(len(basic))])
	if depth > 4 {
		return one
	}
	switch a.r.IntN(8) {
	case 0, 1:
		return "a" + a.kind(depth+1)
	case 2:
		return "(" + a.kind(depth+1) + a.kind(depth+1) + ")"
	case 3:
		return "a{" + one + a.kind(depth+1) + "}"
	case 4:
		return "v"
	}
	return one
}

// body is a random value of a signature.
func (a *attacker) body(sig string) []byte {
	var b []byte
	for sig != "" {
		var one string
		one, sig = first(sig)
		b = a.value(b, one, 0)
	}
	return b
}

// first cuts the first complete type off.
func first(sig string) (one, rest string) {
	switch sig[0] {
	case 'a':
		one, rest = first(sig[1:])
		return "a" + one, rest
	case '(', '{':
		depth := 0
		for i, c := range sig {
			switch c {
			case '(', '{':
				depth++
			case ')', '}':
				if depth--; depth == 0 {
					return sig[:i+1], sig[i+1:]
				}
			}
		}
	}
	return sig[:1], sig[1:]
}

func pad(b []byte, n int) []byte {
	for len(b)%n != 0 {
		b = append(b, 0)
	}
	return b
}

var alignments = map[byte]int{'y': 1, 'g': 1, 'v': 1, 'n': 2, 'q': 2, 'b': 4, 'i': 4, 'u': 4, 's': 4, 'o': 4, 'a': 4, 'x': 8,
	't': 8, 'd': 8, '(': 8, '{': 8}

func (a *attacker) value(b []byte, sig string, depth int) []byte {
	b = pad(b, alignments[sig[0]])
	switch sig[0] {
	case 'y':
		return append(b, byte(a.r.Uint32()))
	case 'n', 'q':
		return binary.LittleEndian.AppendUint16(b, uint16(a.r.Uint32()))
	case 'b':
		return binary.LittleEndian.AppendUint32(b, a.r.Uint32N(2))
	case 'i', 'u':
		return binary.LittleEndian.AppendUint32(b, a.r.Uint32())
	case 'x', 't', 'd':
		return binary.LittleEndian.AppendUint64(b, a.r.Uint64())
	case 's', 'o':
		s := "/x"
		if sig[0] == 's' {
			s = strings.Repeat("é\x1b", a.r.IntN(20))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		return append(append(b, s...), 0)
	case 'g':
		return append(b, 1, basic[a.r.IntN(len(basic))], 0)
	case 'v':
		inner := "v"
		if depth > 6 || a.r.IntN(3) > 0 {
			inner = string(basic[a.r.IntN(len(basic))])
		}
		b = append(b, byte(len(inner)))
		b = append(append(b, inner...), 0)
		return a.value(b, inner, depth+1)
	case '(', '{':
		for rest := sig[1 : len(sig)-1]; rest != ""; {
			var one string
			one, rest = first(rest)
			b = a.value(b, one, depth+1)
		}
		return b
	}
	length := len(b)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = pad(b, alignments[sig[1]])
	start := len(b)
	for range a.r.IntN(4) {
		b = a.value(b, sig[1:], depth+1)
	}
	binary.LittleEndian.PutUint32(b[length:], uint32(len(b)-start))
	return b
}

func text(s string) []byte {
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(s))), s...), 0)
}

// large is a body of about n bytes.
func large(sig string, n int) []byte {
	element := map[string][]byte{"av": {1, 'y', 0, 1}, "as": {0, 0, 0, 0, 0, 0, 0, 0}, "aay": {0, 0, 0, 0}, "ay": {0},
		"a{ss}": {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}[sig]
	if sig == "s" {
		return text(strings.Repeat("x", n))
	}
	body := slices.Repeat(element, n/len(element))
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	if sig == "a{ss}" {
		head = append(head, 0, 0, 0, 0)
	}
	return append(head, body...)
}

// The attackers' messages are valid where they mean to be: else the bus, not the
// daemon, is what is tried.
func TestAttackersSpeakDBus(t *testing.T) {
	a := attacker{r: rand.New(rand.NewPCG(1, 2))}
	kinds := map[byte]bool{}
	for range 2000 {
		sig := a.signature()
		if _, err := dbus.ParseSignature(sig); err != nil {
			t.Fatalf("%s: %v", sig, err)
		}
		for i := range len(sig) {
			kinds[sig[i]] = true
		}
		r := bustest.Raw{}
		frame := r.Frame(dbus.TypeMethodCall, 0, "org.x", "/x", "a.b", "C", sig, a.body(sig))
		if _, err := dbus.DecodeMessage(strings.NewReader(string(frame))); err != nil && !strings.Contains(err.Error(), "type") {
			t.Errorf("%s: %v", sig, err)
		}
	}
	if len(kinds) < len(basic)+6 {
		t.Errorf("only %q", slices.Sorted(maps.Keys(kinds)))
	}
}
