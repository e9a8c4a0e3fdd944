// Package smctl decides when this host runs a subnet manager on one of its
// InfiniBand ports, and when it stops it again.
//
// The decision is a pure state machine: [Decide] takes what is remembered
// about a port and what was observed now, and returns what to do (wait, ask
// the fabric, start, stop) with the reason as a sentence. It knows no clock,
// no kernel and no service manager; time is an input. Package smctl/worker
// calls it, talks to systemd and puts the question to the fabric.
//
// Three rules make Manage=auto safe on every node of a fabric at once:
//
//   - nobody starts before the fabric was asked, with direct-routed SMPs that
//     need no subnet manager, and no other subnet manager was seen;
//   - the time of asking is spread by the port GUID, with an exponential
//     density, so that few ports are early however many boot together
//     (see [Spread]);
//   - a subnet manager that answers is never fought: those that still start
//     in the same instant elect one master by priority and GUID (IBTA 14.4.1),
//     and the others are stopped after StopDelay.
package smctl
