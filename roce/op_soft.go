package roce

import (
	"fmt"

	"ibnetworkd/link"
)

// String prints rdma link add.
func (o AddSoft) String() string {
	return fmt.Sprintf("rdma link add %s type %s netdev %s", o.Name, o.Driver, o.On.Link)
}

// Makes implements link.Maker.
func (o AddSoft) Makes() (link.Made, bool) {
	return link.Made{Kind: kindSoft, Name: o.Name, On: o.On.Ifindex}, false
}

// Makes implements link.Maker.
func (o DelSoft) Makes() (link.Made, bool) {
	return link.Made{Kind: kindSoft, Name: o.Name, On: o.On.Ifindex}, true
}

// String prints rdma link delete.
func (o DelSoft) String() string { return "rdma link delete " + o.Name }
