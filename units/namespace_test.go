package units

import (
	"strings"
	"testing"
)

// NetworkNamespace= is a name of ip netns or an absolute path; without it no child is made, which would
// be in the namespace of its parent.
func TestNetworkNamespace(t *testing.T) {
	for _, tt := range []struct{ value, path string }{
		{"job", "/run/netns/job"},
		{"/var/run/docker/netns/1f", "/var/run/docker/netns/1f"},
		{"a/b", ""}, {"job 1", ""}, {"..", ""}, {".", ""}, {"/run/../x", ""}, {"/run/netns/", ""}, {"a\tb", ""}, {strings.Repeat("a", 256), ""},
	} {
		text := "[Match]\nName=ib0\n[Partition]\nPartitionKey=1\nNetworkNamespace=" + tt.value + "\n"
		u, problems := VerifyFile("a.ibnetwork", []byte(text))
		switch {
		case tt.path != "":
			if len(u.Partitions) != 1 || u.Partitions[0].Namespace() != tt.path || len(problems) > 0 {
				t.Errorf("%q: %+v, %v", tt.value, u.Partitions, problems)
			}
		case len(u.Partitions) > 0 || len(problems) != 1 ||
			!strings.HasPrefix(problems[0].String(), "a.ibnetwork:5:18: warning: [Partition] NetworkNamespace=: ") ||
			!strings.Contains(problems[0].String(), "the [Partition] is not used, because without NetworkNamespace= it would mean something else"):
			t.Errorf("%q: %+v, %v", tt.value, u.Partitions, problems)
		}
	}
}
