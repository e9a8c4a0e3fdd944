package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/daemon/bus/api"
)

// maxEntry bounds one journal entry as JSON.
const maxEntry = 1 << 20

// about is what log entries are chosen by.
type about struct {
	words []string // one of them is in the message, as a word
	units []string // or the entry is of one of these units
}

// chooses reports whether an entry is about it. Without words and units all are.
func (b about) chooses(e answer.LogEntry) bool {
	if len(b.words)+len(b.units) == 0 || slices.Contains(b.units, e.Unit) {
		return true
	}
	for _, w := range b.words {
		for rest := e.Message; ; {
			i := strings.Index(rest, w)
			if i < 0 {
				break
			}
			if (i == 0 || !inName(rest[i-1])) && (i+len(w) == len(rest) || !inName(rest[i+len(w)])) {
				return true
			}
			rest = rest[i+1:]
		}
	}
	return false
}

// inName reports whether c can be part of a name: ib0 is not in ib0.8001.
func inName(c byte) bool {
	return c == '_' || c == '.' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// journalEntry is what journalctl -o json prints (journal-fields, 7).
type journalEntry struct {
	Message   json.RawMessage `json:"MESSAGE"`
	Unit      string          `json:"_SYSTEMD_UNIT"`
	About     string          `json:"UNIT"` // the service manager speaks of this unit
	Transport string          `json:"_TRANSPORT"`
	Priority  string          `json:"PRIORITY"`
	Time      string          `json:"__REALTIME_TIMESTAMP"` // microseconds
}

// parseEntry reads one line of journalctl -o json.
func parseEntry(line []byte) (answer.LogEntry, error) {
	var j journalEntry
	if err := json.Unmarshal(line, &j); err != nil {
		return answer.LogEntry{}, err
	}
	us, err := strconv.ParseInt(j.Time, 10, 64)
	if err != nil {
		return answer.LogEntry{}, fmt.Errorf("__REALTIME_TIMESTAMP: %w", err)
	}
	e := answer.LogEntry{At: time.UnixMicro(us), Unit: cmp.Or(j.About, j.Unit), Priority: 6}
	if j.Transport == "kernel" {
		e.Unit = "kernel"
	}
	if n, err := strconv.Atoi(j.Priority); err == nil && n >= 0 && n <= 7 {
		e.Priority = n
	}
	// What is no valid UTF-8 comes as an array of bytes.
	if json.Unmarshal(j.Message, &e.Message) != nil {
		var b []byte
		var ns []int
		if json.Unmarshal(j.Message, &ns) == nil {
			for _, n := range ns {
				b = append(b, byte(n))
			}
		}
		e.Message = strings.ToValidUTF8(string(b), "?")
	}
	return e, nil
}

// lastEntries reads entries from r and gives those that b chooses to show: all
// of them as they come, or with n > 0 the last n at the end.
func lastEntries(r io.Reader, b about, n int, show func(answer.LogEntry)) error {
	var ring []answer.LogEntry
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxEntry)
	for s.Scan() {
		e, err := parseEntry(s.Bytes())
		if err != nil {
			return fmt.Errorf("cannot read an entry of journalctl: %w", err)
		}
		if !b.chooses(e) {
			continue
		}
		if n <= 0 {
			show(e)
			continue
		}
		if len(ring) == n {
			ring = append(ring[:0], ring[1:]...)
		}
		ring = append(ring, e)
	}
	for _, e := range ring {
		show(e)
	}
	return s.Err()
}

// aboutOf is what the entries about a link or port have in them, or about all that a
// pattern stands for.
func aboutOf(d *api.Description, name string) (about, error) {
	var b about
	if isPattern(name) {
		var names []string
		for _, l := range fitting(d.Links, name) {
			names = append(names, l.Name)
		}
		for _, p := range fittingPorts(d, name) {
			names = append(names, fmt.Sprintf("%s/%d", p.IBDevice, p.Port))
		}
		for _, x := range elsewhere(ours(d.Links), name) {
			names = append(names, x.at.Away.Name)
		}
		for _, n := range names {
			if x, err := aboutOf(d, n); err == nil {
				b.words, b.units = append(b.words, x.words...), append(b.units, x.units...)
			}
		}
		if len(names) > 0 {
			return b, nil
		}
	}
	port := findPort(d, name)
	for i := range d.Links {
		if l := &d.Links[i]; l.Name == name {
			b.words = append(b.words, l.Name)
		}
	}
	for _, x := range elsewhere(d.Links, name) {
		b.words = append(b.words, x.at.Away.Name)
		if n := x.at.Away.Asked; n != "" {
			b.words = append(b.words, n)
		}
	}
	if port != nil {
		b.words = append(b.words, fmt.Sprintf("%s/%d", port.IBDevice, port.Port), fmt.Sprintf("ibdev=%s port=%d", port.IBDevice, port.Port))
		guid := port.PortGUID
		b.units = append(b.units, "ibnetsm@"+guid+".service", "ibnetsm-opensm-"+guid+".service")
	}
	if len(b.words) == 0 {
		return b, fail(exitNoSuch, "%s: no such link or port (for all: ibnetctl list --all, ibnetctl ports)", name)
	}
	return b, nil
}

const journalRights = "reading the journal requires root or the group systemd-journal"

// journalArgs are the arguments of journalctl.
func journalArgs(guids []string, kernel, follow bool, since string, boot bool) []string {
	args := []string{"--quiet", "--no-pager", "--output=json", "--all"}
	if boot {
		args = append(args, "--boot")
	}
	if since != "" {
		args = append(args, "--since="+since)
	}
	if follow {
		args = append(args, "--follow", "--lines=all")
	}
	match := []string{"_COMM=ibnetsm", "_SYSTEMD_UNIT=ibnetworkd.service", "UNIT=ibnetworkd.service"}
	for _, g := range guids {
		for _, u := range []string{"ibnetsm@" + g + ".service", "ibnetsm-opensm-" + g + ".service"} {
			match = append(match, "_SYSTEMD_UNIT="+u, "UNIT="+u)
		}
	}
	if kernel {
		match = append(match, "_TRANSPORT=kernel")
	}
	for i, m := range match {
		if i > 0 {
			args = append(args, "+")
		}
		args = append(args, m)
	}
	return args
}

func (a *app) logsCmd() *cobra.Command {
	var follow, allBoots bool
	var lines, since string
	c := &cobra.Command{
		Use: "logs [LINK|PORT]", Short: "show the log of the daemon and the subnet managers", Args: cobra.MaximumNArgs(1),
		Long: `Prints the journal of ibnetworkd.service and of the subnet managers that it runs,
since this boot. With the name of a link or port, or a shell pattern such as 'ib*',
it prints only messages about it: the daemon's and the kernel's messages that name it, and
the log of the subnet manager on its port.`,
		Annotations:       map[string]string{paged: "unless follow"},
		ValidArgsFunction: one(a.completeBoth),
		RunE: func(cmd *cobra.Command, args []string) error {
			n := 0
			if lines != "all" {
				var err error
				if n, err = strconv.Atoi(lines); err != nil || n < 0 || n > 1e6 {
					return fail(exitUsage, "--lines=%s: not a number up to 1000000, or all", lines)
				}
			}
			quiet := *a
			quiet.json = true
			d, err := quiet.describe(cmd.Context())
			if err != nil {
				return err
			}
			var b about
			if len(args) == 1 {
				if b, err = aboutOf(d, args[0]); err != nil {
					return err
				}
			}
			var guids []string
			for _, p := range d.Ports {
				guids = append(guids, p.PortGUID)
			}
			j, err := exec.LookPath("journalctl")
			if err != nil {
				return errors.New("journalctl is not installed: read the standard error of the programs")
			}
			c := exec.CommandContext(cmd.Context(), j, journalArgs(guids, len(args) == 1, follow, since, !allBoots && since == "")...)
			var said strings.Builder
			c.Stderr = io.MultiWriter(a.err, &said)
			out, err := c.StdoutPipe()
			if err != nil {
				return err
			}
			if err := c.Start(); err != nil {
				return err
			}
			if follow {
				n = 0
			}
			shown := 0
			err = lastEntries(out, b, n, func(e answer.LogEntry) {
				shown++
				a.logEntry(e)
			})
			if err != nil {
				_ = c.Process.Kill()
			}
			if e := c.Wait(); err == nil && e != nil && cmd.Context().Err() == nil {
				err = fmt.Errorf("journalctl: %w", e)
				if strings.Contains(said.String(), "ermission") { // insufficient permissions, Permission denied
					err = fmt.Errorf("%w (%s)", err, journalRights)
				}
			}
			if err == nil && shown == 0 && !a.json {
				hint := "of earlier boots: --all-boots"
				if os.Geteuid() != 0 {
					hint += "; " + journalRights
				}
				fmt.Fprintf(a.err, "no entries (%s)\n", hint)
			}
			return err
		},
	}
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "print new entries as they are logged")
	f.StringVarP(&lines, "lines", "n", "200", "print the last `N` entries, or all")
	f.StringVar(&since, "since", "", "print entries since `TIME`, in journalctl's format")
	f.BoolVar(&allBoots, "all-boots", false, "include earlier boots")
	return c
}

func (a *app) logEntry(e answer.LogEntry) {
	if a.json {
		b, _ := json.Marshal(e)
		fmt.Fprintln(a.out, string(b))
		a.emitted = true
		return
	}
	style := ""
	switch {
	case e.Priority <= 3:
		style = bad
	case e.Priority == 4:
		style = soso
	}
	unit := strings.TrimSuffix(e.Unit, ".service")
	fmt.Fprintf(a.out, "%s %s: %s\n", e.At.Local().Format("Jan 02 15:04:05.000"), unit, a.paint(style, printable(e.Message)))
}
