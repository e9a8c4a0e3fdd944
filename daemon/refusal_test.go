package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// Whatever the kernel refuses, a person reads a sentence that names the thing,
// has the kernel's own words, and says what to do.
func TestRefusals(t *testing.T) {
	ops := slices.Concat(link.Ops(), roce.Ops())
	errnos := []unix.Errno{unix.EPERM, unix.ENOENT, unix.ESRCH, unix.EINTR, unix.EIO, unix.ENXIO, unix.E2BIG, unix.EAGAIN, unix.ENOMEM,
		unix.EACCES, unix.EBUSY, unix.EEXIST, unix.ENODEV,
		unix.EINVAL, unix.ENFILE, unix.ENOSPC, unix.EROFS, unix.ERANGE, unix.ENOSYS, unix.EBADMSG, unix.EOPNOTSUPP, unix.EADDRINUSE,
		unix.EADDRNOTAVAIL, unix.ENETDOWN, unix.ENETUNREACH,
		unix.EHOSTUNREACH, unix.ENOBUFS, unix.ETIMEDOUT}
	for _, op := range ops {
		for _, errno := range errnos {
			for _, message := range []string{"", "the driver's own words."} {
				v, why := classify(op, fmt.Errorf("wrapped: %w", &nl.Error{What: "what", Errno: errno, Message: message}))
				name := fmt.Sprintf("%T %v", op, errno)
				if v == verdictDone || v == verdictForeign {
					if why != (link.Reason{}) {
						t.Errorf("%s: nothing is wrong, yet it says %+v", name, why)
					}
					continue
				}
				thing := strings.Fields(op.Target().String())[0]
				named := strings.Contains(why.Text, thing) ||
					slices.ContainsFunc([]string{"0000:03:00.0", "0000:03:00.1", "rxe0", "v7", "mlx5_0", "10.9.0.0/16", "priority 9", "modprobe.d",
						"rp_filter", "0x8001", "nexthop delete id 7"}, func(s string) bool { return strings.Contains(why.Text, s) })
				words := strings.Contains(why.Text, errno.Error()) && strings.Contains(why.Text, strings.TrimSuffix(message, "."))
				if why.Code == link.CodeNameTaken || errno == unix.EEXIST || errno == unix.ENOENT || errno == unix.ENETDOWN {
					words = true // the sentence says it better
				}
				switch {
				case why.Code == "" || why.Text == "" || why.Next == "":
					t.Errorf("%s: nothing to act on: %+v", name, why)
				case !named || !words:
					t.Errorf("%s: does not say what or why: %q", name, why.Text)
				case strings.Contains(why.Text+why.Next, "%!") || strings.HasSuffix(why.Text, ".") || strings.HasSuffix(why.Next, ".") ||
					len(why.Text) > 400:
					t.Errorf("%s: %q / %q", name, why.Text, why.Next)
				}
			}
		}
	}
}
