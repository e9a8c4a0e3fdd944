// Package daemon is the loop of ibnetworkd: wake, coalesce, load, observe, then plan,
// apply and read in rounds, and report. One goroutine owns all state (snapshot, units, record,
// statuses); event sources only say what to observe, and callers from other
// goroutines (D-Bus, signals) send requests to it.
//
// The loop knows the system through the interface System. Kernel is the real
// one; the tests have one in memory. All decisions are made in daemon/plan and
// the packages that it joins; this package carries them out, sorts what failed into
// what is retried and what is refused, keeps the record of what was made,
// and says what has changed.
package daemon
