// Package bus puts the daemon on D-Bus as org.ibnetwork1: a Manager, and one
// object for each link, RDMA port and subnet manager, with what is wanted, what
// is, and why they differ as typed properties.
//
// The daemon hands new values to Publish and PublishSM, which never block: they
// change the state that property reads are answered from and mark what changed.
// One goroutine turns the marks into PropertiesChanged signals, each with
// exactly the properties that differ, so that any number of changes behind a
// slow bus costs one signal an object and no queue. A bus that restarts is
// joined again.
//
// Reading is open to everyone. What changes something is root's, or asked of
// polkit; where polkit does not run, others are refused with a sentence.
package bus
