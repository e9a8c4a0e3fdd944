package units_test

import (
	"fmt"
	"testing/fstest"

	"ibnetworkd/units"
)

// Every problem has its place, and one bad value does not affect another.
func ExampleVerifyFile() {
	u, problems := units.VerifyFile("a.ibnetwork", []byte(`[Match]
Name=ib0

[IPoIB]
Mode=conected

[Link]
MTUBytes=2044
`))
	fmt.Println(u.Name, u.Link.MTUBytes.V)
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// a.ibnetwork 2044
	// a.ibnetwork:5:6: warning: [IPoIB] Mode=: "conected" is not one of datagram, connected, auto; Mode= stays unset; did you mean connected?
}

// The unit for a link is the first by file name that matches it.
func ExampleSet_Find() {
	disk := fstest.MapFS{
		"10-storage.ibnetwork": {Data: []byte("[Match]\nName=ib1\n")},
		"20-all.ibnetwork":     {Data: []byte("[Match]\nName=ib*\n")},
	}
	set := units.Load([]units.Root{{FS: disk, Path: "/etc/systemd/network"}})
	for _, name := range []string{"ib0", "ib1", "eth0"} {
		u, verdict, why := set.Find(&units.Facts{Name: units.Know(name)})
		if u == nil {
			fmt.Println(name, verdict, why)
			continue
		}
		fmt.Println(name, u.Path)
	}
	// Output:
	// ib0 /etc/systemd/network/20-all.ibnetwork
	// ib1 /etc/systemd/network/10-storage.ibnetwork
	// eth0 no no unit matches
}
