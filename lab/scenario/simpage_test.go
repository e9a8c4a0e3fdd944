package scenario

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// indented are the indented blocks of a page, line by line, without comments.
func indented(page string) (out [][]string) {
	in := false
	for l := range strings.Lines(page) {
		cmd, ok := strings.CutPrefix(l, "    ")
		if ok && !in {
			out = append(out, nil)
		}
		if in = ok; ok {
			cmd, _, _ = strings.Cut(cmd, "  #")
			out[len(out)-1] = append(out[len(out)-1], strings.TrimSpace(cmd))
		}
	}
	return out
}

// The page on the simulator, done as it stands in a copy of the source: two terminals,
// all commands of the console, and opensm in place of ibnetsm. Its last block is a
// benchmark of half an hour, which has tests of its own.
func TestSimulatorPage(t *testing.T) {
	if lab.InGuest() {
		return
	}
	t.Parallel()
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("builds and runs programs of the source, as root")
	}
	for _, p := range []string{"gcc", "ibstat", "opensm", "ibdiagnet"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%v (make deps)", err)
		}
	}
	text := testkit.ReadFile(t, "../../docs/tasks/simulator.md")
	name := fmt.Sprintf("IBSIM_SOCKNAME=page-%d", os.Getpid())
	page := strings.ReplaceAll(string(text), "IBSIM_SOCKNAME=try", name)
	blocks := indented(page)
	opensm := regexp.MustCompile("`(SIM_HOST=[^`]* opensm [^`]*)`").FindStringSubmatch(page)
	if len(blocks) != 3 || opensm == nil || !strings.Contains(page, name) {
		t.Fatalf("the page has %d blocks: %q, opensm: %q", len(blocks), blocks, opensm)
	}
	dir := t.TempDir()
	tree, _ := filepath.Abs("../..")
	copied := exec.Command("sh", "-c", `tar cf - -C "$1" --exclude=./.git --exclude=./build . | tar xf - -C "$2"`, "sh", tree, dir)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var first testkit.Buffer
	sim := exec.Command("bash", "-ec", strings.Join(blocks[0], "\n"))
	sim.Dir, sim.Stdout, sim.Stderr = dir, &first, &first
	console, err := sim.StdinPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, sim.Start())
	ended := make(chan error, 1)
	go func() { ended <- sim.Wait() }()
	defer console.Close()
	for !strings.Contains(first.String(), "Network simulator ready.") {
		select {
		case err := <-ended:
			t.Fatalf("the first terminal: %v\n%s", err, first.String())
		case <-time.After(50 * time.Millisecond):
		}
	}

	// A reader types more slowly than a subnet manager starts, and types ibdiagnet again: it asks once for each P_Key
	// table, and ends if the answer is late, as it is on a busy machine.
	const wait = "for i in $(seq 100); do sminfo 2>/dev/null | grep MASTER && break; sleep 0.1; done; "
	lines := blocks[1]
	last := len(lines) - 1
	typed := strings.NewReplacer("; ", "\n", "ibdiagnet", "ibdiagnet || ibdiagnet").Replace(lines[last])
	script := strings.Join(lines[:last], "\n") + "\n" + wait + "\n" + typed +
		"\nkill $!; wait $! || :\n" + opensm[1] + " & sleep 1; " + wait + "sminfo; kill $!; wait $! || :"
	// A command that fails or hangs is named, and nothing that the script started outlives it.
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	second := exec.CommandContext(ctx, "bash", "-exc", script)
	second.Dir, second.WaitDelay, second.SysProcAttr = dir, time.Second, &syscall.SysProcAttr{Setpgid: true}
	defer func() {
		if second.Process != nil {
			_ = syscall.Kill(-second.Process.Pid, syscall.SIGKILL)
		}
	}()
	out, err := second.CombinedOutput()
	if err != nil {
		t.Fatalf("the second terminal: %v\n%s", err, out)
	}
	for _, want := range []string{"CA type: ", "SMINFO_MASTER", "vendid=", "PathRecord dump:", "-I- Done.", "OpenSM "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the second terminal shows no %q:\n%s", want, out)
		}
	}

	commands := 0
	_, table, _ := strings.Cut(page, "| console |")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range pageSpan.FindAllStringSubmatch(cells[1], -1) {
			cmd := strings.NewReplacer("NODE", `"H-00005"`, "TEXT", "renamed").Replace(m[1])
			before := len(first.String())
			if _, err := io.WriteString(console, cmd+"\n"); err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, first.String())
			}
			commands++
			time.Sleep(50 * time.Millisecond)
			if said := first.String()[before:]; regexp.MustCompile(`(?i)unknown|error|usage|no such|invalid|\?`).MatchString(said) {
				t.Errorf("%s: %s", cmd, said)
			}
		}
	}
	if commands < 12 {
		t.Errorf("only %d commands of the console were found", commands)
	}
	select {
	case err := <-ended: // by quit, the last one
		if err != nil {
			t.Errorf("the first terminal: %v\n%s", err, first.String())
		}
	case <-time.After(10 * time.Second):
		_ = sim.Process.Kill()
		t.Errorf("the simulator does not end:\n%s", first.String())
	}
}
