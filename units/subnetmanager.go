package units

import (
	"time"

	"ibnetworkd/ib"
)

// SubnetManager is [SubnetManager].
type SubnetManager struct {
	Section
	Manage        Value[Manage]
	Engine        Value[Engine]
	StartDelaySec Value[time.Duration]
	// Priority is 0 to 15, higher wins.
	Priority       Value[int]
	SubnetPrefix   Value[uint64]
	RoutingEngine  Value[string]
	PartitionsFile Value[string]
	// Partition are rules in the form of sm/partition's ParseRule.
	Partition             []Value[string]
	LMC                   Value[ib.LMC]
	StopWhenForeignMaster Value[bool]
	StopDelaySec          Value[time.Duration]
	// KeyFile has M_Key, SM_Key and SA key; MKeyProtect is 0 to 3.
	KeyFile              Value[string]
	MKeyProtect          Value[int]
	MKeyLeaseSec         Value[time.Duration]
	QoS                  Value[bool]
	PartitionEnforcement Value[Enforcement]
	NodeNameMap          Value[string]
	QoSPolicyFile        Value[string]
	RootGUIDFile         Value[string]
	CNGUIDFile           Value[string]
	IOGUIDFile           Value[string]
	HopWeightsFile       Value[string]
	GUIDRoutingOrderFile Value[string]
	PrefixRoutesFile     Value[string]
	GUID2LIDFile         Value[string]
	SweepSec             Value[time.Duration]
	PollSec              Value[time.Duration]
	Reregister           Value[Reregister]
	TimeoutSec           Value[time.Duration]
	Retries              Value[int]
	Window               Value[int]
	Verbose              Value[bool]
}

// Enforcement is where switches check P_Keys.
type Enforcement uint8

// The values of PartitionEnforcement=.
const (
	EnforceBoth Enforcement = iota
	EnforceIn
	EnforceOut
	EnforceOff
)

// Reregister is which hosts register again after a takeover with a complete copy.
type Reregister uint8

// The values of Reregister=.
const (
	ReregisterAuto Reregister = iota
	ReregisterAlways
	ReregisterNever
)

// Manage is when a subnet manager runs for the port.
type Manage uint8

// The values of Manage=.
const (
	ManageNo     Manage = iota // never
	ManageAuto                 // when the subnet has none
	ManageAlways               // whenever the link is up; the election decides which one is master
)

// Engine is the subnet manager program.
type Engine uint8

// The values of Engine=.
const (
	EngineBuiltin Engine = iota
	EngineOpenSM
)
