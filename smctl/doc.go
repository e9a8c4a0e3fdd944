// Package smctl decides when this host runs a subnet manager on one of its
// InfiniBand ports, and when it stops it.
//
// The decision is a pure state machine: [Decide] maps the state of a port and an
// observation to what to do (wait, query the fabric, start, stop), with the reason
// as a sentence. Time is an input. Package smctl/worker calls it, talks to systemd
// and queries the fabric.
//
// Three rules make Manage=auto safe on every node of a fabric at once:
//
//   - no host starts a subnet manager before it has queried the fabric, with
//     direct-routed SMPs that need no subnet manager, and found none;
//   - the time of the query is spread by the port GUID, with an exponential
//     density, so that few ports are early however many boot together
//     (see [Spread]);
//   - a subnet manager that answers is never contested: those that still start
//     in the same instant elect one master by priority and GUID (IBTA 14.4.1),
//     and the others are stopped after StopDelay.
package smctl
