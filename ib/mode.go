package ib

import "fmt"

// IPoIBMode is the transport mode of an IPoIB link. The numbers are the kernel's
// (IPOIB_MODE_* in include/uapi/linux/if_link.h).
type IPoIBMode uint16

// The two modes (RFC 4391, RFC 4755).
const (
	ModeDatagram  IPoIBMode = 0
	ModeConnected IPoIBMode = 1
)

// String prints the word of sysfs and ip link.
func (m IPoIBMode) String() string {
	switch m {
	case ModeDatagram:
		return "datagram"
	case ModeConnected:
		return "connected"
	}
	return fmt.Sprintf("mode %d", uint16(m))
}

// MarshalText implements encoding.TextMarshaler.
func (m IPoIBMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Anything but "connected" is
// datagram, as in the kernel.
func (m *IPoIBMode) UnmarshalText(b []byte) error {
	*m = ModeDatagram
	if string(b) == "connected" {
		*m = ModeConnected
	}
	return nil
}
