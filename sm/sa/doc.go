// Package sa is the subnet administrator: it answers the questions that hosts
// ask about the subnet and keeps what they register with it.
//
// It owns multicast groups and their members, event subscriptions, services and
// their leases, and alias GUIDs (IBA vol 1, chapter 15). It sends nothing, has
// no clock and starts no goroutine: Handle takes a request and the time and
// gives back the answer and what else must happen, which the subnet manager's
// engine does. Forwarding tables, partitions and the fabric come in through
// SetState after every sweep and are never changed here.
//
// A Service is used by one goroutine. Whatever a request says, the memory it
// can make the Service keep is bounded (Config), and a request that is not well
// formed is counted and dropped.
package sa
