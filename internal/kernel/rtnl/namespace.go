package rtnl

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// sizeRtGenMsg is struct rtgenmsg: the family, padded.
const sizeRtGenMsg = 4

// getNSID requests the number by which this network namespace knows the one that an
// attribute names.
func getNSID(attr uint16, value int) nl.Request {
	return nl.NewRequest("get the number of a network namespace", unix.RTM_GETNSID, 0,
		nl.Build(make([]byte, sizeRtGenMsg)...).Uint32(attr, uint32(value)))
}

// NamespaceID is the number by which this network namespace knows the one of an open
// file, -1 if it has none. The error is EINVAL for a file that is no network namespace.
func (c *Conn) NamespaceID(fd int) (id int, err error) {
	id = -1
	errs := c.Ask([]nl.Request{getNSID(unix.NETNSA_FD, fd)}, func(_ int, typ uint16, b []byte) error {
		if typ != unix.RTM_NEWNSID {
			return fmt.Errorf("the kernel answered with message type %d", typ)
		}
		return decodeNSID(b, &id, nil)
	})
	return id, errs[0]
}

// NamespaceIDs are the numbers by which this network namespace knows others.
func (c *Conn) NamespaceIDs() ([]int, error) {
	r := nl.NewRequest("list network namespaces", unix.RTM_GETNSID, 0, nl.Build(make([]byte, sizeRtGenMsg)...))
	return dump(c, r, unix.RTM_NEWNSID, 8, decodeNSID)
}

func decodeNSID(b []byte, id *int, _ *interner) error {
	if len(b) < sizeRtGenMsg {
		return errShort
	}
	a := nl.ParseAttrs(b[sizeRtGenMsg:])
	for a.Next() {
		if a.Type() == unix.NETNSA_NSID {
			*id = int(int32(a.Uint32()))
		}
	}
	return a.Err()
}

// NumberNamespace gives the network namespace of an open file a number by which this one
// knows it, if it has none. The kernel does so for one to which a link is moved, not for
// one in which a link is made.
func (c *Conn) NumberNamespace(fd int) error {
	w := nl.Build(make([]byte, sizeRtGenMsg)...).Uint32(unix.NETNSA_NSID, ^uint32(0)).Uint32(unix.NETNSA_FD, uint32(fd))
	err := c.Do(nl.NewRequest("number a network namespace", unix.RTM_NEWNSID, 0, w))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// OwnNamespace reports whether an open file is the network namespace of this thread.
func OwnNamespace(fd int) bool {
	var file, own unix.Stat_t
	return unix.Fstat(fd, &file) == nil && unix.Stat("/proc/thread-self/ns/net", &own) == nil && file.Dev == own.Dev && file.Ino == own.Ino
}

// NamespaceFile identifies the network namespace of an open file, also among those of other times: a
// later one can have its number, and the number of its inode. The time is that of the inode, which lasts
// while the namespace is mounted.
func NamespaceFile(fd int) string {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%d %d.%09d", st.Ino, st.Mtim.Sec, st.Mtim.Nsec)
}

// InNamespace opens a network namespace for f. Others than regular files, which a
// namespace counts as, are not opened.
func InNamespace(path string, f func(fd int) error) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}
	n, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	return f(int(n.Fd()))
}

// GoneNamespaces returns the numbers that no longer name a network namespace; -1 stands for
// none. The kernel frees a number before it deletes what is in the namespace
// (net/core/net_namespace.c, cleanup_net).
func (c *Conn) GoneNamespaces(nsids []int) (gone []int) {
	rs := make([]nl.Request, len(nsids))
	for i, id := range nsids {
		rs[i] = getNSID(unix.NETNSA_NSID, id)
	}
	for i, err := range c.Ask(rs, func(int, uint16, []byte) error { return nil }) {
		if nsids[i] >= 0 && errors.Is(err, unix.ENOENT) {
			gone = append(gone, nsids[i])
		}
	}
	return gone
}

// linkIn is the head of a message about a link of another network namespace.
func linkIn(id, index int) *nl.Builder {
	h := make([]byte, sizeIfInfo)
	ne.PutUint32(h[4:], uint32(index))
	return nl.Build(h...).Uint32(unix.IFLA_TARGET_NETNSID, uint32(id))
}

// LinkIn reads a link of the network namespace with a number: by its index, or by its
// name where that is 0. The error is ENODEV if there is none, EINVAL if there is no such
// namespace.
func (c *Conn) LinkIn(id, index int, name string) (Link, error) {
	w := linkIn(id, index).Uint32(unix.IFLA_EXT_MASK, extMask(false))
	if index == 0 {
		w.String(unix.IFLA_IFNAME, name)
	}
	return c.oneLink(nl.NewRequest(fmt.Sprintf("read link %s in network namespace %d", name, id), unix.RTM_GETLINK, 0, w))
}

// LinksIn dumps the links of the network namespace with a number.
func (c *Conn) LinksIn(id int) ([]Link, error) {
	r := nl.NewRequest(fmt.Sprintf("list links of network namespace %d", id), unix.RTM_GETLINK, 0,
		linkIn(id, 0).Uint32(unix.IFLA_EXT_MASK, extMask(false)))
	return dump(c, r, unix.RTM_NEWLINK, 8, decodeLink)
}

// DelLinkIn removes a link of the network namespace with a number.
func DelLinkIn(id, index int) Request {
	return nl.NewRequest(fmt.Sprintf("delete link %d in network namespace %d", index, id), unix.RTM_DELLINK, 0, linkIn(id, index))
}

// MoveLink moves a link to the network namespace of an open file and brings it up there:
// the kernel takes a link down that it moves, and sets its flags afterwards.
func MoveLink(index, fd int) Request {
	h := make([]byte, sizeIfInfo)
	ne.PutUint32(h[4:], uint32(index))
	ne.PutUint32(h[8:], unix.IFF_UP)
	ne.PutUint32(h[12:], unix.IFF_UP)
	return nl.NewRequest(fmt.Sprintf("move link %d to another network namespace", index), unix.RTM_NEWLINK, 0,
		nl.Build(h...).Uint32(unix.IFLA_NET_NS_FD, uint32(fd)))
}
