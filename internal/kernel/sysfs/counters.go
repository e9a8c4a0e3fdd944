package sysfs

import (
	"os"
	"strconv"
	"strings"
)

// PortCounters reads the counters of a port: those of the port, and the adapter's own. The
// names are in lower case. An absent device has none.
func (f FS) PortCounters(dev string, port int) map[string]uint64 {
	out := map[string]uint64{}
	dir, err := f.portDir(dev, port)
	if err != nil {
		return out
	}
	counters(dir+"/counters", out)
	counters(dir+"/hw_counters", out)
	return out
}

// LinkCounters reads the counters of a network interface (rtnl_link_stats64 by their names
// in sysfs). An absent interface has none.
func (f FS) LinkCounters(link string) map[string]uint64 {
	out := map[string]uint64{}
	if dir, err := f.join("class", "net", link, "statistics"); err == nil {
		counters(dir, out)
	}
	return out
}

// counters adds the numbers of a directory to out. What is not a number, and a setting among
// them (lifespan), is left out.
func counters(dir string, out map[string]uint64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		n := e.Name()
		if n == "lifespan" || strings.Trim(n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			continue
		}
		if v, err := strconv.ParseUint(text(dir+"/"+n), 10, 64); err == nil {
			out[strings.ToLower(n)] = v
		}
	}
}
