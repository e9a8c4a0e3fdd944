package scenario

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// Each driver's way with data centre bridging: what it rounds, replaces, refuses
// and does beside what it is asked.
func TestDCBOfDrivers(t *testing.T) {
	t.Parallel()
	const mlx5, mlx4, bnxt, ice, hns3 = 0, 1, 2, 3, 4
	commands := []string{"dcb h0 trusts", "dcb h3 cee"}
	files := map[string]string{}
	for i, name := range []string{"mlx5_core", "mlx4_core", "bnxt_en", "ice", "hns3"} {
		commands = append(commands, fmt.Sprintf("type h%d/1 eth", i), fmt.Sprintf("driver h%d %s", i, name))
		files[fmt.Sprintf("%s%d-eth.ibnetwork", unitDir, 10+i)] = "[Match]\nDriver=" + name + "\n"
	}
	withAndWithoutUdev(t, lab.Config{HCAs: 5, Bins: []string{ibnetworkd, ibnetctl}, Commands: commands, Files: files},
		func(g *lab.G) {
			d := startDaemon(g)
			names := make([]string, 5)
			g.Wait("the Ethernet links", 20*time.Second, func() bool {
				n := 0
				for _, s := range d.report().Links {
					var i int
					if _, err := fmt.Sscanf(s.IBDevice, "swib%d", &i); err == nil && s.Kind == "ether" {
						names[i], n = s.Name, n+1
					}
				}
				return n == len(names)
			})
			drivers := []string{"mlx5_core", "mlx4_core", "bnxt_en", "ice", "hns3"}
			type want struct{ key, actual, why string }
			// is gives a link a [RoCE] section and waits for what is reported of it, and for
			// what the kernel has.
			is := func(card int, text string, wants []want, shows map[string][]string) {
				g.Helper()
				g.Write(fmt.Sprintf("%s%d-eth.ibnetwork", unitDir, 10+card), "[Match]\nDriver="+drivers[card]+"\n[RoCE]\n"+text)
				d.p.Signal(syscall.SIGHUP)
				g.WaitFor(15*time.Second, func() string {
					st := d.status(names[card])
					for _, w := range wants {
						found := false
						for _, a := range st.Attributes {
							found = found || a.Name == w.key && (w.why == "" && a.OK() && strings.Contains(a.Actual, w.actual) || w.why != "" &&
								strings.Contains(a.Why.Text+" / "+a.Why.Next, w.why))
						}
						if !found {
							return fmt.Sprintf("%s %swants %+v: %+v\n%s", drivers[card], text, w, st.Attributes, tail(d.p.Output(), 8))
						}
					}
					for what, words := range shows {
						if s := dcbHas(g, names[card], what, words...); s != "" {
							return drivers[card] + " " + text + s
						}
					}
					return ""
				})
			}
			dscp := func(card int, words ...string) map[string][]string { return map[string][]string{"app": words} }
			sets := func(card int, what string) int {
				return strings.Count(d.p.Output(), `op="dcb `+what+` set dev `+names[card]+` `)
			}

			// mlx5 begins with the firmware, and with a priority for every DSCP.
			is(mlx5, "BufferSize=0:128K\n", []want{{"BufferSize", "0:131040", ""}}, map[string][]string{"buffer": {"0:131040"}, "app": {"63:7"}})
			g.Exec("ibnetctl", "--no-bus", "status", names[mlx5])
			is(mlx5, "BufferSize=0:128K 1:1000\n", []want{{"BufferSize", "1:864", ""}}, map[string][]string{"buffer": {"1:864"}})
			is(mlx5, "BufferSize=0:128K 1:1200\n", []want{{"BufferSize", "1:1152", ""}}, map[string][]string{"buffer": {"1:1152"}})
			if n := sets(mlx5, "buffer"); n != 3 {
				g.Errorf("the buffers were set %d times for three sizes", n)
			}
			is(mlx5, "DSCPToPriority=26:3\n", []want{{"DSCPToPriority", "26:3", ""}}, dscp(mlx5, "AF31:3", "AF13:1"))
			is(mlx5, "DSCPToPriority=26:5\n", []want{{"DSCPToPriority", "26:5", ""}}, dscp(mlx5, "AF31:5"))
			is(mlx5, "Trust=pcp\n", []want{{"Trust", "pcp", ""}}, nil)
			g.WaitFor(10*time.Second, func() string {
				if out, _ := g.Try("dcb", "app", "show", "dev", names[mlx5]); strings.Contains(out, "dscp-prio") {
					return out
				}
				return ""
			})
			down := func() string {
				return strings.TrimSpace(g.Read("/sys/class/net/" + names[mlx5] + "/carrier_down_count"))
			}
			before := down()
			is(mlx5, "PFC=3\nCableLength=5\n", []want{{"PFC", "3", ""}, {"CableLength", "5 m", ""}}, nil)
			g.Wait("the link to go down and up", 10*time.Second, func() bool { return down() != before })
			is(mlx5, "PFC=3\nBufferSize=0:20000\nPriorityToBuffer=3:0\n",
				[]want{{"BufferSize", "", "a buffer of a priority with flow control is too small"}}, nil)
			g.Ctl("dcb h0 nobuffers")
			is(mlx5, "PFC=4\nCableLength=9\nBufferSize=0:128K\n",
				[]want{{"PFC", "4", ""}, {"CableLength", "", "no length of the cable"}, {"BufferSize", "", "no receive buffers"}}, nil)
			g.Ctl("dcb h0 nodscp")
			is(mlx5, "DSCPToPriority=26:5\n", []want{{"DSCPToPriority", "", "cannot set DSCPToPriority="}}, nil)

			// mlx4 has no priorities by DSCP; the core would keep them.
			is(mlx4, "PFC=3\nETS=0:40 3:60\n", []want{{"PFC", "3", ""}, {"ETS", "3:60", ""}}, nil)
			is(mlx4, "DSCPToPriority=26:3\nTrust=dscp\n",
				[]want{{"DSCPToPriority", "", "the driver mlx4_core of " + names[mlx4] + " has no priorities by DSCP"}}, nil)
			is(mlx4, "Trust=pcp\n", []want{{"Trust", "pcp", ""}}, nil)
			if out, _ := g.Try("dcb", "app", "show", "dev", names[mlx4]); strings.Contains(out, "26:") || strings.Contains(out, "AF31") {
				g.Errorf("the core keeps a list for mlx4:\n%s", out)
			}

			// bnxt wants classes before flow control, and loses a DSCP with any entry of it.
			is(bnxt, "PFC=3\n", []want{{"PFC", "3", ""}}, map[string][]string{"pfc": {"3:on"}})
			is(bnxt, "DSCPToPriority=26:3\n", []want{{"DSCPToPriority", "26:3", ""}}, dscp(bnxt, "AF31:3"))
			is(bnxt, "DSCPToPriority=26:5\n", []want{{"DSCPToPriority", "26:5", ""}}, dscp(bnxt, "AF31:5"))
			if hw := g.FabricPort("hca2", 1)["dscp"]; hw != "26:5" {
				g.Errorf("the card of bnxt has %q", hw)
			}
			g.Ctl("dcb h2 nodscp")
			is(bnxt, "DSCPToPriority=48:6\n", []want{{"DSCPToPriority", "", "the firmware of " + names[bnxt] +
				" does not have DSCPToPriority="}}, nil)

			// ice is in CEE mode here, and refuses a second priority for a DSCP.
			is(ice, "DSCPToPriority=26:3\n", []want{{"DSCPToPriority", "26:3", ""}}, dscp(ice, "AF31:3"))
			is(ice, "DSCPToPriority=26:5\n", []want{{"DSCPToPriority", "26:5", ""}}, dscp(ice, "AF31:5"))
			is(ice, "DSCPToPriority=26:2\n", []want{{"DSCPToPriority", "26:2", ""}}, dscp(ice, "AF31:2")) // its default: no change of the card
			// Its first DSCP sets the classes to defaults, and its last one flow control too.
			is(ice, "ETS=0:40 3:60\nDSCPToPriority=26:6\nPFC=3\n", []want{{"ETS", "", ""}, {"DSCPToPriority", "26:6", ""}, {"PFC", "3", ""}},
				map[string][]string{"ets": {"0:40", "3:60"}})
			is(ice, "PriorityToClass=4:0\nDSCPToPriority=26:6\n", []want{{"PriorityToClass", "", "remove 4:0 of PriorityToClass="}}, nil)
			is(ice, "DSCPToPriority=26:6\nPFC=3\n", []want{{"DSCPToPriority", "26:6", ""}, {"PFC", "3", ""}}, dscp(ice, "AF31:6"))

			// hns3 replaces by itself, and refuses to delete what it has not.
			is(hns3, "DSCPToPriority=26:3\n", []want{{"DSCPToPriority", "26:3", ""}}, dscp(hns3, "AF31:3"))
			is(hns3, "DSCPToPriority=26:5\n", []want{{"DSCPToPriority", "26:5", ""}}, dscp(hns3, "AF31:5"))

			// A firmware that keeps DCBX: one sentence, and nothing else is tried.
			g.Ctl("dcb h3 managed")
			g.Ctl("type h3/1 ib")
			g.Ctl("type h3/1 eth")
			g.Wait("the link of ice again", 20*time.Second, func() bool {
				for _, s := range d.report().Links {
					if s.IBDevice == "swib3" && s.Kind == "ether" {
						names[ice] = s.Name
						return true
					}
				}
				return false
			})
			is(ice, "PFC=5\nETS=0:40 3:60\nDSCPToPriority=26:7\n",
				[]want{{"DCBX", "", "ethtool --set-priv-flags " + names[ice] + " fw-lldp-agent off"}}, nil)
			st := d.wait(names[ice], "one reason", 10*time.Second, func(s link.Status) bool { return len(s.Reasons) == 1 })
			if attr(st, "PFC").Name != "" || attr(st, "DSCPToPriority").Name != "" {
				g.Errorf("keys after DCBX: %+v", st.Attributes)
			}
		})
}
