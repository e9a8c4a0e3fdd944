package roce

import (
	"fmt"
	"strings"
)

// String prints dcb dcbx set.
func (o SetDCBX) String() string {
	var words []string
	for _, f := range []struct {
		bit  uint8
		word string
	}{{0x01, "host"}, {0x02, "lld-managed"}, {0x04, "cee"}, {0x08, "ieee"}, {0x10, "static"}} {
		if o.Flags&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	return fmt.Sprintf("dcb dcbx set dev %s %s", o.On.Link, strings.Join(words, " "))
}

// String prints dcb pfc set with all priorities.
func (o SetPFC) String() string {
	var words []string
	for p := range Priorities {
		words = append(words, fmt.Sprintf("%d:%s", p, onOff(o.Priority&(1<<p) != 0)))
	}
	out := fmt.Sprintf("dcb pfc set dev %s prio-pfc %s", o.On.Link, strings.Join(words, " "))
	if o.Delay != 0 {
		out += fmt.Sprintf(" delay %d", o.Delay)
	}
	return out
}

// String prints the writes to the driver's files.
func (o SetECN) String() string {
	n := 0
	if o.Enable {
		n = 1
	}
	dir := "/sys/class/net/" + o.On.Link + "/ecn"
	return fmt.Sprintf("echo %d > %s/roce_np/enable/%d && echo %d > %s/roce_rp/enable/%d", n, dir, o.Priority, n, dir, o.Priority)
}

// String prints the write of the file.
func (o SetModprobe) String() string {
	return fmt.Sprintf("echo %s > %s", quote(strings.TrimSuffix(o.Text, "\n")), ModprobeFile)
}

// String prints dcb ets set with all classes.
func (o SetETS) String() string {
	var tsa, bw, tc []string
	for i := range Priorities {
		tsa = append(tsa, fmt.Sprintf("%d:%s", i, o.Classes.TSA[i]))
		bw = append(bw, fmt.Sprintf("%d:%d", i, o.Classes.Percent[i]))
		tc = append(tc, fmt.Sprintf("%d:%d", i, o.Classes.Class[i]))
	}
	return fmt.Sprintf(
		"dcb ets set dev %s tc-tsa %s tc-bw %s prio-tc %s",
		o.On.Link,
		strings.Join(tsa, " "),
		strings.Join(bw, " "),
		strings.Join(tc, " "),
	)
}

// String prints dcb app add, or replace, which adds and then deletes the other
// priorities of the DSCP.
func (o MapDSCP) String() string {
	verb := "add"
	if o.Replace {
		verb = "replace"
	}
	return fmt.Sprintf("dcb app %s dev %s dscp-prio %d:%d", verb, o.On.Link, o.DSCP, o.Priority)
}

// String prints dcb app flush.
func (o ClearDSCP) String() string { return fmt.Sprintf("dcb app flush dev %s dscp-prio", o.On.Link) }

// String prints dcb apptrust set.
func (o SetTrust) String() string {
	return fmt.Sprintf("dcb apptrust set dev %s order %s", o.On.Link, o.Trust)
}

// String prints dcb buffer set with all buffers.
func (o SetBuffers) String() string {
	var prio, size []string
	for i := range Priorities {
		prio = append(prio, fmt.Sprintf("%d:%d", i, o.Buffers.Buffer[i]))
		size = append(size, fmt.Sprintf("%d:%d", i, o.Buffers.Size[i]))
	}
	return fmt.Sprintf("dcb buffer set dev %s prio-buffer %s buffer-size %s", o.On.Link, strings.Join(prio, " "), strings.Join(size, " "))
}
