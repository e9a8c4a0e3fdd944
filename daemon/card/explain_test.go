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

// A macvlan that another program moved to another network namespace has the MAC address that another one of its name gets.
func TestExplainMACVLAN(t *testing.T) {
	op := roce.AddVLAN{On: link.Target{Link: "eth0"}, Name: "job0", VLAN: units.VLAN{Kind: units.KindMACVLAN}}
	why, retry, ok := Explain(op, unix.EADDRINUSE, "address already in use")
	if want := "a macvlan of eth0 has the MAC address of macvlan job0"; !ok || !retry || !strings.HasPrefix(why.Text, want) {
		t.Errorf("%+v, retried %v", why, retry)
	}
}

func TestBack(t *testing.T) {
	if got := back("GUID", unix.EIO); got != "the former GUID could not be put back (input/output error)" {
		t.Error(got)
	}
}
