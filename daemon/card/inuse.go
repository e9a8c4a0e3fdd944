package card

import (
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
)

// inUse is the error for a virtual function that has a user.
type inUse struct{ user string }

// Error is a sentence.
func (e *inUse) Error() string { return e.user }

// Unwrap is what the kernel answers for a device in use.
func (e *inUse) Unwrap() error { return unix.EBUSY }

// upLink is a link that is up, with the path of its device below /sys.
type upLink struct{ name, path string }

// user returns what uses a function, "" for nothing: a driver that gives it to a
// virtual machine, or a link below it that is up.
func user(driver, dev string, up []upLink) string {
	for _, l := range up {
		if strings.Contains(l.path+"/", "/"+dev+"/") {
			return l.name + " is up"
		}
	}
	if strings.HasPrefix(driver, "vfio") {
		return "the driver " + driver + " has it"
	}
	return ""
}

// unused reports an *inUse for a function that has a user now: the plan may be
// minutes old when its turn comes.
func (e *executor) unused(bus, dev string) error {
	b, _, err := e.sys.BusDevice(bus, dev)
	if err != nil {
		return err
	}
	links, err := e.rt.Links(false)
	if err != nil {
		return err
	}
	byIndex := make(map[int]*rtnl.Link, len(links))
	for i := range links {
		byIndex[links[i].Index] = &links[i]
	}
	var up []upLink
	for i := range links {
		l := &links[i]
		if !l.Up() {
			continue
		}
		of := l
		if p := byIndex[l.Parent]; l.IPoIB != nil && p != nil && !l.ParentElsewhere {
			of = p // a child is on the device of its parent
		}
		up = append(up, upLink{l.Name, e.sys.NetPath(of.Name)})
	}
	if who := user(b.Driver, dev, up); who != "" {
		return &inUse{who}
	}
	return nil
}
