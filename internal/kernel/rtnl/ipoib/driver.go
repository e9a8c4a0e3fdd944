// Package ipoib is the rtnetlink link driver "ipoib": the codec of IFLA_INFO_DATA
// of an IP-over-InfiniBand interface (drivers/infiniband/ulp/ipoib/ipoib_netlink.c).
// Encoding needs no registration; a program that decodes messages by
// github.com/jsimonetti/rtnetlink registers it there.
package ipoib

import (
	"fmt"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
)

// Kind is the driver's name in IFLA_INFO_KIND.
const Kind = "ipoib"

// Driver is the data of one interface. A nil field was not in the message, or
// is not sent.
type Driver struct {
	// PKey is read for every interface and sent when a child is made; the
	// kernel sets bit 15 and cannot change it later.
	PKey *ib.PKey
	// Mode is sent to change it (RTM_NEWLINK without NLM_F_CREATE).
	Mode *ib.IPoIBMode
	// UMcast is 1 if multicast groups that userspace joins are ignored.
	UMcast *uint16
}

var _ rtnetlink.LinkDriverVerifier = (*Driver)(nil)

// New makes an empty value for the decoder.
func (*Driver) New() rtnetlink.LinkDriver { return &Driver{} }

// Kind is "ipoib".
func (*Driver) Kind() string { return Kind }

// Encode appends the fields that are set. All are u16 in host order
// (ipoib_policy).
func (d *Driver) Encode(ae *netlink.AttributeEncoder) error {
	if d.PKey != nil {
		ae.Uint16(unix.IFLA_IPOIB_PKEY, uint16(*d.PKey))
	}
	if d.Mode != nil {
		ae.Uint16(unix.IFLA_IPOIB_MODE, uint16(*d.Mode))
	}
	if d.UMcast != nil {
		ae.Uint16(unix.IFLA_IPOIB_UMCAST, *d.UMcast)
	}
	return nil
}

// Decode reads the fields; unknown attributes of newer kernels are skipped.
func (d *Driver) Decode(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IPOIB_PKEY:
			v := ib.PKey(ad.Uint16())
			d.PKey = &v
		case unix.IFLA_IPOIB_MODE:
			v := ib.IPoIBMode(ad.Uint16())
			d.Mode = &v
		case unix.IFLA_IPOIB_UMCAST:
			d.UMcast = new(ad.Uint16())
		}
	}
	return ad.Err()
}

// Verify refuses what the kernel would refuse with EINVAL and no message: a child
// without parent, and a partition key that names no partition.
func (d *Driver) Verify(m *rtnetlink.LinkMessage) error {
	if d.PKey != nil && !d.PKey.IsValid() {
		return fmt.Errorf("partition key %s names no partition: 0x0000 and 0x8000 are invalid", *d.PKey)
	}
	if d.PKey != nil && m.Index == 0 && (m.Attributes == nil || m.Attributes.Type == 0) {
		return fmt.Errorf("an IPoIB child with partition key %s needs a parent link", *d.PKey)
	}
	if d.Mode != nil && *d.Mode > ib.ModeConnected {
		return fmt.Errorf("%s is neither datagram (0) nor connected (1)", *d.Mode)
	}
	if d.UMcast != nil && *d.UMcast > 1 {
		return fmt.Errorf("umcast %d is neither 0 nor 1", *d.UMcast)
	}
	return nil
}
