package daemon

import (
	"reflect"
	"strings"

	"ibnetworkd/internal/kernel/procsys"
	"ibnetworkd/link"
)

// observeSysctls reads the settings of links. For a change by another program no event
// comes: it is seen when the link or the units are read again.
func (o *Observer) observeSysctls(s *link.Snapshot, sc Scope, w Needs) {
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		keys := w.Sysctls(s, l)
		if len(keys) == 0 {
			return false
		}
		have := true
		for _, k := range keys {
			_, ok := l.Sysctl[k]
			have = have && ok
		}
		if have && !sc.All && !sc.Reload && !sc.Force[l.Index] && !sc.Links[l.Index] {
			return false
		}
		m := make(map[string]string, len(keys))
		for _, k := range keys {
			if v, ok := o.settings[l.Index].Get(k); ok {
				m[k] = v // came with the link
				continue
			}
			fam, leaf, _ := strings.Cut(k, "/")
			if v, err := o.proc.Get(procsys.Family(fam), l.Name, leaf); err == nil {
				m[k] = v
			}
		}
		if reflect.DeepEqual(m, l.Sysctl) {
			return false
		}
		l.Sysctl = m
		return true
	})
}
