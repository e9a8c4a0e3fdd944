package card

import (
	"maps"
	"slices"
	"strings"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// contestMemory is how long a correction counts.
const contestMemory = 10 * time.Minute

// corrected notes that an operation was carried out.
func (o *Observer) corrected(op link.Op) {
	key := roce.ContestedKey(op)
	if key == "" {
		return
	}
	key += "\x00" + op.String()
	o.done[key] = append(o.done[key], time.Now())
}

// contested counts, for each setting, how often the same command was needed again.
func (o *Observer) contested() map[string]int {
	var out map[string]int
	for key, times := range o.done {
		times = slices.DeleteFunc(times, func(t time.Time) bool { return time.Since(t) > contestMemory })
		if len(times) == 0 {
			delete(o.done, key)
			continue
		}
		o.done[key] = times
		if len(times) < 2 {
			continue
		}
		i := strings.LastIndexByte(key, 0)
		if out == nil {
			out = map[string]int{}
		}
		out[key[:i]] = max(out[key[:i]], len(times)-1)
	}
	return out
}

// Forget resets the count of a link, after its administrator asked for it.
func (o *Observer) Forget(name string) { o.forget(name + "\x00") }

func (o *Observer) forget(prefix string) {
	maps.DeleteFunc(o.done, func(key string, _ []time.Time) bool { return strings.HasPrefix(key, prefix) })
}
