package rtnl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// GoneNamespaces gives those of these numbers that name no network namespace. The kernel
// frees a number before it deletes what is in the namespace (net/core/net_namespace.c,
// cleanup_net).
func (c *Conn) GoneNamespaces(nsids []int) (gone []int) {
	rs := make([]nl.Request, len(nsids))
	for i, id := range nsids {
		w := nl.Build(make([]byte, sizeRtGenMsg)...).Uint32(unix.NETNSA_NSID, uint32(id))
		rs[i] = nl.NewRequest(fmt.Sprintf("read network namespace %d", id), unix.RTM_GETNSID, 0, w)
	}
	for i, err := range c.Ask(rs, func(int, uint16, []byte) error { return nil }) {
		if errors.Is(err, unix.ENOENT) {
			gone = append(gone, nsids[i])
		}
	}
	return gone
}

// sizeRtGenMsg is struct rtgenmsg: the family, padded.
const sizeRtGenMsg = 4
