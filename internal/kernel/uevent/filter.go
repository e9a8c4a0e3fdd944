package uevent

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// attachFilter makes the kernel drop udevd's events of other subsystems, which would wake
// the process. It is the filter of libudev (sd_device_monitor_filter_update): a message
// that is not udevd's passes.
func attachFilter(fd int, subsystems []string) error {
	const offMagic, offSubsystem = 8, 24
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equal := func(value uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: uint8(yes), Jf: uint8(no)}
	}
	verdict := func(length uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: length}
	}
	n := len(subsystems)
	prog := []unix.SockFilter{load(offMagic), equal(udevMagic, 0, n+2), load(offSubsystem)}
	for i, s := range subsystems {
		prog = append(prog, equal(hash32(s), n-i, 0))
	}
	prog = append(prog, verdict(0), verdict(math.MaxUint32))
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

// hash32 is MurmurHash2 with seed 0, as which udevd's header has the subsystem.
func hash32(s string) uint32 {
	const m = 0x5bd1e995
	b := []byte(s)
	h := uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.NativeEndian.Uint32(b) * m
		h = h*m ^ (k^k>>24)*m
	}
	for i := len(b) - 1; i >= 0; i-- {
		h ^= uint32(b[i]) << (8 * i)
	}
	if len(b) > 0 {
		h *= m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
