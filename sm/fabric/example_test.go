package fabric_test

import (
	"fmt"
	"strings"

	"ibnetworkd/sm/fabric"
)

// The text is that of ibnetdiscover; nodes and ports are in GUID order whatever the
// order of the text.
func ExampleReadText() {
	const text = `
Switch	8 "S-0002c90200000001"		# "leaf" enhanced port 0 lid 1 lmc 0
[1]	"H-0002c903000a0000"[1](2c903000a0001)	# "a" lid 2 4xQDR
[2]	"H-0002c903000b0000"[1](2c903000b0001)	# "b" lid 3 4xQDR

Ca	1 "H-0002c903000b0000"		# "b"
[1](2c903000b0001)	"S-0002c90200000001"[2]		# lid 3 lmc 0 "leaf" lid 1 4xQDR

Ca	1 "H-0002c903000a0000"		# "a"
[1](2c903000a0001)	"S-0002c90200000001"[1]		# lid 2 lmc 0 "leaf" lid 1 4xQDR
`
	f, err := fabric.ReadText("net", strings.NewReader(text))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(f.Nodes), "nodes,", len(f.Switches), "switch,", f.Links(), "links")
	for _, p := range f.EndPorts {
		fmt.Println(f.PortName(p))
	}
	// Output:
	// 3 nodes, 1 switch, 2 links
	// leaf[0]
	// a[1]
	// b[1]
}
