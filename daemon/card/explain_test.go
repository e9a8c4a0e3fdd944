package card

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// Whatever an operation fails with, what is reported of it is a sentence with the
// kernel's words and a next step, and never that of another package's operation.
func TestExplain(t *testing.T) {
	errs := []error{errFirmware, configfs.ErrUnavailable, dcb.ErrNoDCB, devlink.ErrNoDevlink,
		&NotTaken{What: "ib0 did not take 8", Why: "it has 4", After: back("number 4", nil)}}
	for _, e := range []unix.Errno{unix.EPERM, unix.ENOENT, unix.EIO, unix.ENOMEM, unix.EACCES, unix.EBUSY, unix.EEXIST, unix.ENODEV,
		unix.EINVAL, unix.ENFILE, unix.ENOSPC, unix.EROFS, unix.ERANGE, unix.ENOSYS, unix.EOPNOTSUPP, unix.EBADMSG, unix.EADDRINUSE} {
		errs = append(errs, e)
	}
	said := map[string]int{}
	for _, op := range roce.Ops() {
		name := fmt.Sprintf("%T", op)
		for _, err := range errs {
			why, retry, ok := Explain(op, err, "the kernel's words")
			if !ok {
				if why != (link.Reason{}) || retry {
					t.Errorf("%s, %v: %+v without an explanation", name, err, why)
				}
				continue
			}
			said[name]++
			_, own := err.(*NotTaken)
			if why.Text == "" || why.Next == "" || !own && !strings.Contains(why.Text, "the kernel's words") {
				t.Errorf("%s, %v: %q, next %q", name, err, why.Text, why.Next)
			}
			if want := map[bool]link.Code{true: link.CodeRetry, false: link.CodeRefused}[retry]; why.Code != want {
				t.Errorf("%s, %v: code %s, retried %v", name, err, why.Code, retry)
			}
		}
		if said[name] < 2 {
			t.Errorf("%s has no sentence of its own for any error", name)
		}
	}
	for _, op := range link.Ops() {
		if why, _, ok := Explain(op, unix.EINVAL, ""); ok {
			t.Errorf("%T is explained: %+v", op, why)
		}
	}
}

// ENOMEM is no lack of memory: mlx5 answers it for a buffer that is too small, and the
// answers of bnxt for what its firmware lacks end in the same byte.
func TestExplainNoMemory(t *testing.T) {
	on := link.Target{Link: "eth0"}
	for _, tt := range []struct {
		op   link.Op
		want string
	}{
		{roce.SetPFC{On: on}, "a buffer of a priority with flow control is too small"},
		{roce.SetBuffers{On: on}, "a buffer of a priority with flow control is too small"},
		{roce.MapDSCP{On: on}, "the firmware of eth0 does not have DSCPToPriority="},
		{roce.SetETS{On: on}, "the firmware of eth0 does not have ETS="},
	} {
		why, retry, ok := Explain(tt.op, unix.ENOMEM, "cannot allocate memory")
		if !ok || retry || !strings.Contains(why.Text, tt.want) || why.Next == "" {
			t.Errorf("%T: %+v, retried %v", tt.op, why, retry)
		}
	}
}

// The next step of an interface that cannot be made is that of its kind. A macvlan that another program moved to another
// network namespace has the MAC address that another one of its name gets.
func TestExplainVLAN(t *testing.T) {
	for _, tt := range []struct {
		kind       units.VLANKind
		err        unix.Errno
		retry      bool
		text, next string
	}{
		{units.KindMACVLAN, unix.EADDRINUSE, true, "a macvlan of eth0 has the MAC address of macvlan job0",
			"write another Name= in [MACVLAN]"},
		{units.KindVLAN, unix.EOPNOTSUPP, false, "VLAN 0 cannot be made on eth0",
			"modprobe 8021q; some links cannot have VLANs"},
		{units.KindMACVLAN, unix.EOPNOTSUPP, false, "macvlan job0 cannot be made on eth0",
			"modprobe macvlan"},
		{units.KindIPVLAN, errNotSupported, false, "ipvlan job0 cannot be made on eth0",
			"modprobe ipvlan; Mode=L3S needs"},
	} {
		op := roce.AddVLAN{On: link.Target{Link: "eth0"}, Name: "job0", VLAN: units.VLAN{Kind: tt.kind}}
		why, retry, ok := Explain(op, tt.err, tt.err.Error())
		next := strings.HasPrefix(why.Next, tt.next) && (tt.kind == units.KindIPVLAN || !strings.Contains(why.Next, "L3S"))
		if !ok || retry != tt.retry || !next || !strings.HasPrefix(why.Text, tt.text) {
			t.Errorf("%s, %v: %+v, retried %v", tt.kind, tt.err, why, retry)
		}
	}
}

func TestBack(t *testing.T) {
	if got := back("GUID", unix.EIO); got != "the previous GUID could not be restored (input/output error)" {
		t.Error(got)
	}
}
