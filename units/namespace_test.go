package units

import (
	"strings"
	"testing"
)

// NetworkNamespace= is a name of ip netns or an absolute path; without it no child or VLAN is made, which would
// be in the namespace of its parent.
func TestNetworkNamespace(t *testing.T) {
	for _, tt := range []struct{ value, path string }{
		{"job", "/run/netns/job"},
		{"/var/run/docker/netns/1f", "/var/run/docker/netns/1f"},
		{"a/b", ""}, {"job 1", ""}, {"..", ""}, {".", ""}, {"/run/../x", ""}, {"/run/netns/", ""}, {"a\tb", ""}, {strings.Repeat("a", 256), ""},
	} {
		for _, section := range []string{"Partition", "VLAN"} {
			key := map[string]string{"Partition": "PartitionKey", "VLAN": "Id"}[section]
			text := "[Match]\nName=eth0\n[" + section + "]\n" + key + "=1\nNetworkNamespace=" + tt.value + "\n"
			u, problems := VerifyFile("a.ibnetwork", []byte(text))
			var got []string
			for i := range u.Partitions {
				got = append(got, u.Partitions[i].Namespace())
			}
			for i := range u.VLANs {
				got = append(got, u.VLANs[i].Namespace())
			}
			switch {
			case tt.path != "":
				if len(got) != 1 || got[0] != tt.path || len(problems) > 0 {
					t.Errorf("[%s] %q: %q, %v", section, tt.value, got, problems)
				}
			case len(got) > 0 || len(problems) != 1 ||
				!strings.HasPrefix(problems[0].String(), "a.ibnetwork:5:18: warning: ["+section+"] NetworkNamespace=: ") ||
				!strings.Contains(problems[0].String(),
					"the ["+section+"] is not used, because without NetworkNamespace= it would mean something else"):
				t.Errorf("[%s] %q: %q, %v", section, tt.value, got, problems)
			}
		}
	}
}
