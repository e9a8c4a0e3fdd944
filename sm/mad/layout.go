package mad

// component is the position of a component of a record on the wire.
type component struct {
	bit  CompMask // which component
	off  uint16   // first bit from the start of the record
	bits uint16
}

// Layout is the components of a record that a query may name, so that matching
// is one loop for all records instead of code for each.
type Layout struct {
	fields []component
	known  CompMask
}

func newLayout(fields ...component) *Layout {
	l := &Layout{fields: fields}
	for _, f := range fields {
		l.known |= f.bit
	}
	return l
}

// Matches reports whether rec has what the request asks for in every component
// of the mask. Components without a place in the layout (reserved ones) do not
// count. Both slices are whole records.
func (l *Layout) Matches(rec, req []byte, mask CompMask) bool {
	if mask &= l.known; mask == 0 {
		return true
	}
	for _, f := range l.fields {
		if mask&f.bit != 0 && !sameBits(rec, req, int(f.off), int(f.bits)) {
			return false
		}
	}
	return true
}

func sameBits(a, b []byte, off, n int) bool {
	if off%8 == 0 {
		for ; n >= 8; n -= 8 {
			if a[off/8] != b[off/8] {
				return false
			}
			off += 8
		}
	}
	for n > 0 {
		take := min(n, 8-off%8)
		m := byte(1<<take-1) << (8 - off%8 - take)
		if (a[off/8]^b[off/8])&m != 0 {
			return false
		}
		off += take
		n -= take
	}
	return true
}

// Layouts of the records (IBA vol 1, 15.2.5), offsets in bits.
var (
	NodeLayout = newLayout(
		component{CompNRLID, 0, 16}, component{CompNRBaseVersion, 32, 8}, component{CompNRClassVersion, 40, 8},
		component{CompNRNodeType, 48, 8}, component{CompNRNumPorts, 56, 8}, component{CompNRSystemImageGUID, 64, 64},
		component{CompNRNodeGUID, 128, 64}, component{CompNRPortGUID, 192, 64}, component{CompNRPartitionCap, 256, 16},
		component{CompNRDeviceID, 272, 16}, component{CompNRRevision, 288, 32}, component{CompNRLocalPortNum, 320, 8},
		component{CompNRVendorID, 328, 24}, component{CompNRDescription, 352, 512})

	// The capability masks are matched apart: a request may name single bits.
	PortInfoLayout = newLayout(
		component{CompPIRLID, 0, 16}, component{CompPIRPort, 16, 8},
		component{CompPIRMKey, 32, 64}, component{CompPIRGIDPrefix, 96, 64}, component{CompPIRBaseLID, 160, 16},
		component{CompPIRMasterSMLID, 176, 16}, component{CompPIRDiagCode, 224, 16}, component{CompPIRMKeyLease, 240, 16},
		component{CompPIRLocalPortNum, 256, 8}, component{CompPIRLinkWidthEnabled, 264, 8}, component{CompPIRLinkWidthSupported, 272, 8},
		component{CompPIRLinkWidthActive, 280, 8}, component{CompPIRLinkSpeedSupported, 288, 4}, component{CompPIRPortState, 292, 4},
		component{CompPIRPhysState, 296, 4}, component{CompPIRLinkDownDefault, 300, 4}, component{CompPIRMKeyProtect, 304, 2},
		component{CompPIRLMC, 309, 3}, component{CompPIRLinkSpeedActive, 312, 4}, component{CompPIRLinkSpeedEnabled, 316, 4},
		component{CompPIRNeighborMTU, 320, 4}, component{CompPIRMasterSMSL, 324, 4}, component{CompPIRVLCap, 328, 4},
		component{CompPIRInitType, 332, 4}, component{CompPIRVLHighLimit, 336, 8}, component{CompPIRVLArbHighCap, 344, 8},
		component{CompPIRVLArbLowCap, 352, 8}, component{CompPIRInitTypeReply, 360, 4}, component{CompPIRMTUCap, 364, 4},
		component{CompPIRVLStallCount, 368, 3}, component{CompPIRHOQLife, 371, 5}, component{CompPIROperVLs, 376, 4},
		component{CompPIRPartEnforceInbound, 380, 1}, component{CompPIRPartEnforceOutbound, 381, 1},
		component{CompPIRFilterRawInbound, 382, 1}, component{CompPIRFilterRawOutbound, 383, 1},
		component{CompPIRMKeyViolations, 384, 16}, component{CompPIRPKeyViolations, 400, 16}, component{CompPIRQKeyViolations, 416, 16},
		component{CompPIRGUIDCap, 432, 8}, component{CompPIRClientReregister, 440, 1}, component{CompPIRSubnetTimeout, 443, 5},
		component{CompPIRRespTimeValue, 451, 5}, component{CompPIRLocalPhyErrors, 456, 4}, component{CompPIROverrunErrors, 460, 4},
		component{CompPIRMaxCreditHint, 464, 16}, component{CompPIRLinkLatency, 488, 24},
		component{CompPIRLinkSpeedExtActive, 528, 4}, component{CompPIRLinkSpeedExtSupported, 532, 4},
		component{CompPIRLinkSpeedExtEnabled, 539, 5})

	SLtoVLLayout = newLayout(component{CompSLVLLID, 0, 16}, component{CompSLVLInPort, 16, 8},
		component{CompSLVLOutPort, 24, 8})
	SwitchLayout = newLayout(component{CompSWIRLID, 0, 16})
	LFTLayout    = newLayout(component{CompLFTLID, 0, 16}, component{CompLFTBlock, 16, 16})
	MFTLayout    = newLayout(component{CompMFTLID, 0, 16}, component{CompMFTPosition, 16, 4}, component{CompMFTBlock, 23, 9})
	SMInfoLayout = newLayout(component{CompSMIRLID, 0, 16}, component{CompSMIRGUID, 32, 64},
		component{CompSMIRActCount, 160, 32}, component{CompSMIRPriority, 192, 4}, component{CompSMIRState, 196, 4})
	LinkLayout = newLayout(component{CompLRFromLID, 0, 16}, component{CompLRFromPort, 16, 8},
		component{CompLRToPort, 24, 8}, component{CompLRToLID, 32, 16})
	GUIDInfoLayout  = newLayout(component{CompGIRLID, 0, 16}, component{CompGIRBlock, 16, 8})
	PKeyTableLayout = newLayout(component{CompPKTRLID, 0, 16}, component{CompPKTRBlock, 16, 16},
		component{CompPKTRPort, 32, 8})
	VLArbLayout = newLayout(component{CompVLARLID, 0, 16}, component{CompVLARPort, 16, 8}, component{CompVLARBlock, 24, 8})

	ServiceLayout = func() *Layout {
		f := []component{{CompSRServiceID, 0, 64}, {CompSRGID, 64, 128}, {CompSRPKey, 192, 16},
			{CompSRKey, 256, 128}, {CompSRName, 384, 512}}
		bit, off := CompSRData, uint16(896)
		for _, k := range []struct{ n, bits uint16 }{{16, 8}, {8, 16}, {4, 32}, {2, 64}} {
			for range k.n {
				f = append(f, component{bit, off, k.bits})
				bit, off = bit<<1, off+k.bits
			}
		}
		return newLayout(f...)
	}()
	InformLayout = newLayout(component{CompIIRSubscriberGID, 0, 128}, component{CompIIREnum, 128, 16})
)
