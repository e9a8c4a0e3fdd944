package smctl

import (
	"strings"
	"testing"
)

// A plan names each start, stop, reload and restart as its command, and what it
// means for a fabric that has no other subnet manager.
func TestOutlook(t *testing.T) {
	pol := autoPolicy
	pol.PartitionsFile = "/etc/p.conf"
	on := Running{State: WorkerActive, Phase: PhaseMaster, Unit: "ibnetsm@x.service", Named: "ibnetsm@x.service",
		Settings: Settings(pol), Files: "a",
		StatusText: StatusText{State: SMMaster, Known: true}}
	off := Running{Phase: PhaseSettling, Unit: "ibnetsm@x.service", Named: "ibnetsm@x.service"}
	with := func(r Running, f func(*Running)) Running { f(&r); return r }
	change := func(f func(*Policy)) Policy { p := pol; f(&p); return p }
	good := Files{Digest: "a"}
	const only = "the fabric's only subnet manager"
	const reload = "settings or files have changed; where one needs it, ibnetsm restarts and no port can join a group for some seconds"
	for _, tt := range []struct {
		name string
		r    Running
		p    Policy
		f    Files
		want string // the lines
	}{
		{"nothing", on, pol, good, ""},
		{"no unit any more", on, Policy{}, Files{},
			"systemctl stop ibnetsm@x.service   # " + only + "; no unit asks for a subnet manager on mlx5_0/1"},
		{"Manage=no", on, change(func(p *Policy) { p.Manage = ManageNo }), good,
			"systemctl stop ibnetsm@x.service   # " + only + "; /etc/systemd/network/ib.ibnetwork has Manage=no"},
		{"with others", with(on, func(r *Running) { r.StatusText.Others = 1 }), Policy{}, Files{},
			"systemctl stop ibnetsm@x.service   # no unit asks for a subnet manager on mlx5_0/1"},
		{"being stopped", with(on, func(r *Running) { r.State = WorkerDeactivating }), Policy{}, Files{},
			"# systemctl stop ibnetsm@x.service is in progress: " + only + "; port mlx5_0/1"},
		{"by hand it stays", with(on, func(r *Running) { r.Override = OverrideStart }), Policy{}, Files{}, ""},
		{"another priority", on, change(func(p *Policy) { p.Priority = 9 }), good,
			"systemctl reload ibnetsm@x.service   # " + only + "; " + reload},
		{"another rule", on, change(func(p *Policy) { p.Partitions = "0x8001\n" }), good,
			"systemctl reload ibnetsm@x.service   # " + only + "; " + reload},
		{"another file's text", on, pol, Files{Digest: "b"}, "systemctl reload ibnetsm@x.service   # " + only + "; " + reload},
		{"the text of a file that only one may open", with(on, func(r *Running) { r.Files = "partitions:stamp:1" }), pol,
			Files{Digest: "partitions:text:2"}, ""},
		{"the text of a file that both may open", with(on, func(r *Running) { r.Files = "partitions:text:1" }), pol,
			Files{Digest: "partitions:text:2"}, "systemctl reload ibnetsm@x.service   # " + only + "; " + reload},
		{"opensm's file", with(on, func(r *Running) { r.Engine = EngineOpenSM }),
			change(func(p *Policy) { p.Engine = EngineOpenSM }), Files{Digest: "b"}, "systemctl kill --kill-whom=main -s HUP " +
				"ibnetsm@x.service   # partitions or names have changed"},
		{"opensm, another priority", with(on, func(r *Running) { r.Engine = EngineOpenSM }),
			change(func(p *Policy) {
				p.Engine, p.Priority = EngineOpenSM, 9
			}), good, "systemctl restart ibnetsm@x.service   # " + only + "; no port can join a group for some seconds"},
		{"a bad file", on, change(func(p *Policy) { p.Priority = 9 }), Files{Digest: "b", Problem: "/etc/p.conf:2:9: no"},
			"# ibnetsm@x.service: not changed: /etc/p.conf:2:9: no"},
		{"another engine", on, change(func(p *Policy) { p.Engine = EngineOpenSM }), good,
			"systemctl stop ibnetsm@x.service   # " + only + "; Engine=opensm\nsystemctl start ibnetsm@x.service"},
		{"auto", off, pol, good,
			"# systemctl start ibnetsm@x.service, if port mlx5_0/1 has a link and no subnet manager answers within 3s to 6s"},
		{"auto, served", with(off, func(r *Running) { r.Phase = PhaseServed }), pol, good, ""},
		{"always, served", with(off, func(r *Running) { r.Phase = PhaseServed }),
			change(func(p *Policy) { p.Manage = ManageAlways }), good, "systemctl start ibnetsm@x.service   # port mlx5_0/1"},
		{"barred", with(off, func(r *Running) { r.Phase = PhaseNVSwitch }), change(func(p *Policy) { p.Manage = ManageAlways }), good, ""},
		{"the port is gone", with(on, func(r *Running) { r.Gone = "port mlx5_0/1 does not exist" }), pol, good,
			"systemctl stop ibnetsm@x.service   # " + only + "; port mlx5_0/1 does not exist"},
		{"the port is gone, none runs", with(off, func(r *Running) { r.Gone = "port mlx5_0/1 does not exist" }), pol, good, ""},
		{"no link", with(on, func(r *Running) { r.Phase = PhaseNoLink }), pol, good,
			"# systemctl stop ibnetsm@x.service, if port mlx5_0/1 has no link for 30s"},
		{"no link, started by hand", with(on, func(r *Running) { r.Phase, r.Override = PhaseNoLink, OverrideStart }), pol, good, ""},
		{"a better master", with(on, func(r *Running) {
			r.Phase, r.StatusText = PhaseStandby, StatusText{Known: true, State: SMStandby, Others: 1}
		}), pol, good,
			"# systemctl stop ibnetsm@x.service, if another subnet manager is master for 30s"},
		{"a better master, it stays as standby",
			with(on, func(r *Running) {
				r.Phase, r.StatusText = PhaseStandby, StatusText{Known: true, State: SMStandby, Others: 1}
			}),
			change(func(p *Policy) { p.StopWhenForeignMaster = false }), good, ""},
		{"opensm with a bad file", off, change(func(p *Policy) { p.Engine, p.Manage = EngineOpenSM, ManageAlways }),
			Files{Problem: "/etc/p.conf: gone", Kept: "one that starts uses the default partition"},
			"systemctl start ibnetsm@x.service   # port mlx5_0/1; /etc/p.conf: gone: one that starts uses the default partition"},
		{"held", with(off, func(r *Running) { r.Override = OverrideStop }), pol, good, ""},
		{"a start with a bad file", with(off, func(r *Running) { r.Phase = PhaseBackingOff }), pol,
			Files{Problem: "/etc/p.conf: gone"}, "systemctl start ibnetsm@x.service   # when the wait after its failure is over; " +
				"/etc/p.conf: gone"},
	} {
		var got []string
		for _, s := range Outlook("mlx5_0/1", tt.r, tt.p, tt.f) {
			got = append(got, s.String())
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, strings.Join(got, "\n"), tt.want)
		}
	}
}
