package lab

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// Whatever changes the simulated fabric is marked.
func TestFabricMarks(t *testing.T) {
	read, err := fabric.ReadText("fabric", strings.NewReader(`Switch	8 "S-0000000000000a01"		# "left" base port 0 lid 0 lmc 0
[8]	"S-0000000000000b01"[8]		# "right" lid 0 4xQDR
Switch	8 "S-0000000000000b01"		# "right" base port 0 lid 0 lmc 0
[8]	"S-0000000000000a01"[8]		# "left" lid 0 4xQDR
`))
	if err != nil {
		t.Fatal(err)
	}
	sim := simfabric.New(read, simfabric.Options{})
	defer sim.Close()
	var marks []string
	f := &Fabric{Sim: sim, mark: func(_ time.Time, text string, bad bool) {
		if bad {
			text = "BAD " + text
		}
		marks = append(marks, text)
	}}
	left, right := sim.FindHost("left")[0].NodeGUID, sim.FindHost("right")[0].NodeGUID
	tried := map[string]bool{}
	for _, tc := range []struct {
		name string
		do   func() error
		want string
	}{
		{"Cut", func() error { return f.Cut(left, 8) }, "cut the cable at left/8"},
		{"Restore", func() error { return f.Restore(left, 8) }, "join the cable at left/8"},
		{"Flap", func() error { return f.Flap(right, 8) }, "flap right/8"},
		{"Move", func() error { return f.Move(left, 8, right, 8) }, "BAD move the cable at left/8 to right/8: " + simfabric.ErrBusy.Error()},
		{"PowerOff", func() error { return f.PowerOff(left) }, "power off left"},
		{"PowerOn", func() error { return f.PowerOn(left) }, "power on left"},
		{"Reboot", func() error { return f.Reboot(left) }, "reboot left"},
		{"Mute", func() error { return f.Mute(left, true) }, "mute left"},
		{"Mute", func() error { return f.Mute(left, false) }, "unmute left"},
		{"Slow", func() error { return f.Slow(left, time.Second) }, "answers after 1s: left"},
		{"SetLoss", func() error { f.SetLoss(0.25); return nil }, "loss of 25 %"},
		{"SetPortInfo", func() error { return f.SetPortInfo(left, 1, func(*mad.PortInfo) {}) }, "change the PortInfo of left/1"},
		{"SetErrors", func() error { return f.SetErrors(left, 1, func(*mad.PortCounters) {}) }, "change the error counters of left/1"},
		{"SetNodeInfo", func() error { return f.SetNodeInfo(left, func(*mad.NodeInfo) {}) }, "change the NodeInfo of left"},
		{"SetSwitchInfo", func() error { return f.SetSwitchInfo(left, func(*mad.SwitchInfo) {}) }, "change the SwitchInfo of left"},
		{"SetDescription", func() error { return f.SetDescription(left, "middle") }, `rename left to "middle"`},
	} {
		t.Run(tc.want, func(t *testing.T) {
			marks = nil
			tried[tc.name] = true
			err := tc.do()
			if len(marks) != 1 || marks[0] != tc.want || (err != nil) != strings.HasPrefix(tc.want, "BAD ") {
				t.Errorf("%v: marked %q, want %q", err, marks, tc.want)
			}
		})
	}
	// What only looks, or is for the ends of cables and for agents.
	looks := map[string]bool{}
	for name := range strings.FieldsSeq(`Counters ResetCounters PortInfo PKeys SwitchTables SLtoVL Reaches Multicast EndPorts
		AllActive FindHost NodeInfo IsSMHolder Register Open OpenClient OpenRaw Plug Close`) {
		looks[name] = true
	}
	for m := range reflect.TypeFor[*simfabric.Sim]().Methods() {
		if !tried[m.Name] && !looks[m.Name] {
			t.Errorf("Sim.%s is not marked", m.Name)
		}
	}
}
