package sa

import (
	"fmt"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/mad"
)

// manyHops is the hop limit of a path over routers: how many there are is not known.
const manyHops = 255

// router is the port that leads to GIDs with a prefix of another subnet: that of the first
// line that matches and whose router is on the subnet; None without one. Link-local GIDs,
// those in fe80::/10, are never routed (IBA vol 1, 4.1.1).
func (s *Service) router(prefix uint64) int32 {
	if prefix>>54 == ib.DefaultPrefix>>54 {
		return fabric.None
	}
	for _, r := range s.state.PrefixRoutes {
		if r.Prefix != 0 && r.Prefix != prefix {
			continue
		}
		if p := routerOf(s.f, r.Router); p != fabric.None {
			return p
		}
	}
	return fabric.None
}

// routerOf finds the port of a router by its GUID, 0 for that of the lowest GUID.
func routerOf(f *fabric.Fabric, guid ib.GUID) int32 {
	is := func(p int32) bool { return f.Nodes[f.Ports[p].Node].Type == ib.NodeRouter && f.Ports[p].LID != 0 }
	if guid != 0 {
		if p := f.EndPortByGUID(guid); p != fabric.None && is(p) {
			return p
		}
		return fabric.None
	}
	for _, p := range f.EndPorts {
		if is(p) {
			return p
		}
	}
	return fabric.None
}

// MissingRouters returns the prefix routes that have no router on the subnet.
func MissingRouters(f *fabric.Fabric, routes []guidfile.PrefixRoute) (out []string) {
	for _, r := range routes {
		if routerOf(f, r.Router) != fabric.None {
			continue
		}
		who := "the subnet has no router"
		if r.Router != 0 {
			who = fmt.Sprintf("%v is not a port of a router of the subnet", r.Router)
		}
		prefix := "any prefix"
		if r.Prefix != 0 {
			prefix = fmt.Sprintf("prefix %#016x", r.Prefix)
		}
		if out = append(out, "prefix route: "+prefix+": "+who); len(out) == maxMissing {
			break
		}
	}
	return out
}

// maxMissing bounds what MissingRouters says.
const maxMissing = 20

// findTarget is find for a destination, whose GID may be of another subnet: then the
// router to it is the end of the path.
func (q *query) findTarget(gid ib.GID, hasGID bool, lid ib.LID, hasLID bool) (side, mad.Status) {
	if !hasGID || q.validPrefix(gid) {
		return q.find(gid, hasGID, lid, hasLID)
	}
	p := q.router(gid.Prefix())
	if p == fabric.None {
		return side{port: p}, mad.StatusSAInvalidGID
	}
	s, st := q.find(gid, false, lid, hasLID)
	if st == mad.StatusOK && s.port != fabric.None && s.port != p {
		st = mad.StatusSAReqInvalid
	}
	s.port, s.gid, s.has = p, gid, true
	return s, st
}
