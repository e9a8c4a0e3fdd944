package link

// Numbers of include/uapi/linux/rtnetlink.h and fib_rules.h.
const (
	TableMain  uint32 = 254
	TableLocal uint32 = 255

	RouteUnicast     uint8 = 1
	RouteLocal       uint8 = 2
	RouteBroadcast   uint8 = 3
	RouteAnycast     uint8 = 4
	RouteMulticast   uint8 = 5
	RouteBlackhole   uint8 = 6
	RouteUnreachable uint8 = 7
	RouteProhibit    uint8 = 8
	RouteThrow       uint8 = 9

	ScopeGlobal uint8 = 0
	ScopeSite   uint8 = 200
	ScopeLink   uint8 = 253
	ScopeHost   uint8 = 254

	ProtoRedirect uint8 = 1
	ProtoKernel   uint8 = 2
	ProtoBoot     uint8 = 3
	ProtoStatic   uint8 = 4
	ProtoRA       uint8 = 9
	ProtoDHCP     uint8 = 16

	RuleToTable     uint8 = 1
	RuleGoto        uint8 = 2
	RuleNop         uint8 = 3
	RuleBlackhole   uint8 = 6
	RuleUnreachable uint8 = 7
	RuleProhibit    uint8 = 8
)
