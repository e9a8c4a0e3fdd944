package sa

import "ibnetworkd/sm/mad"

// field is the position of a component of a record on the wire.
type field struct {
	bit  mad.CompMask // which component
	off  uint16       // first bit from the start of the record
	bits uint16
}

// layout is the components of a record that a query may name, so that matching
// is one loop for all records instead of code for each.
type layout struct {
	fields []field
	known  mad.CompMask
}

func newLayout(fields ...field) *layout {
	l := &layout{fields: fields}
	for _, f := range fields {
		l.known |= f.bit
	}
	return l
}

// matches reports whether rec has what the request asks for in every component
// of the mask. Components without a place in the layout (reserved ones) do not
// count. Both slices are whole records.
func (l *layout) matches(rec, req []byte, mask mad.CompMask) bool {
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
	nodeLayout = newLayout(
		field{mad.CompNRLID, 0, 16}, field{mad.CompNRBaseVersion, 32, 8}, field{mad.CompNRClassVersion, 40, 8},
		field{mad.CompNRNodeType, 48, 8}, field{mad.CompNRNumPorts, 56, 8}, field{mad.CompNRSystemImageGUID, 64, 64},
		field{mad.CompNRNodeGUID, 128, 64}, field{mad.CompNRPortGUID, 192, 64}, field{mad.CompNRPartitionCap, 256, 16},
		field{mad.CompNRDeviceID, 272, 16}, field{mad.CompNRRevision, 288, 32}, field{mad.CompNRLocalPortNum, 320, 8},
		field{mad.CompNRVendorID, 328, 24}, field{mad.CompNRDescription, 352, 512})

	// CapabilityMask is matched apart: see portInfoMatches.
	portInfoLayout = newLayout(
		field{mad.CompPIRLID, 0, 16}, field{mad.CompPIRPort, 16, 8},
		field{mad.CompPIRMKey, 32, 64}, field{mad.CompPIRGIDPrefix, 96, 64}, field{mad.CompPIRBaseLID, 160, 16},
		field{mad.CompPIRMasterSMLID, 176, 16}, field{mad.CompPIRDiagCode, 224, 16}, field{mad.CompPIRMKeyLease, 240, 16},
		field{mad.CompPIRLocalPortNum, 256, 8}, field{mad.CompPIRLinkWidthEnabled, 264, 8}, field{mad.CompPIRLinkWidthSupported, 272, 8},
		field{mad.CompPIRLinkWidthActive, 280, 8}, field{mad.CompPIRLinkSpeedSupported, 288, 4}, field{mad.CompPIRPortState, 292, 4},
		field{mad.CompPIRPhysState, 296, 4}, field{mad.CompPIRLinkDownDefault, 300, 4}, field{mad.CompPIRMKeyProtect, 304, 2},
		field{mad.CompPIRLMC, 309, 3}, field{mad.CompPIRLinkSpeedActive, 312, 4}, field{mad.CompPIRLinkSpeedEnabled, 316, 4},
		field{mad.CompPIRNeighborMTU, 320, 4}, field{mad.CompPIRMasterSMSL, 324, 4}, field{mad.CompPIRVLCap, 328, 4},
		field{mad.CompPIRInitType, 332, 4}, field{mad.CompPIRVLHighLimit, 336, 8}, field{mad.CompPIRVLArbHighCap, 344, 8},
		field{mad.CompPIRVLArbLowCap, 352, 8}, field{mad.CompPIRInitTypeReply, 360, 4}, field{mad.CompPIRMTUCap, 364, 4},
		field{mad.CompPIRVLStallCount, 368, 3}, field{mad.CompPIRHOQLife, 371, 5}, field{mad.CompPIROperVLs, 376, 4},
		field{mad.CompPIRPartEnforceInbound, 380, 1}, field{mad.CompPIRPartEnforceOutbound, 381, 1},
		field{mad.CompPIRFilterRawInbound, 382, 1}, field{mad.CompPIRFilterRawOutbound, 383, 1},
		field{mad.CompPIRMKeyViolations, 384, 16}, field{mad.CompPIRPKeyViolations, 400, 16}, field{mad.CompPIRQKeyViolations, 416, 16},
		field{mad.CompPIRGUIDCap, 432, 8}, field{mad.CompPIRClientReregister, 440, 1}, field{mad.CompPIRSubnetTimeout, 443, 5},
		field{mad.CompPIRRespTimeValue, 451, 5}, field{mad.CompPIRLocalPhyErrors, 456, 4}, field{mad.CompPIROverrunErrors, 460, 4},
		field{mad.CompPIRMaxCreditHint, 464, 16}, field{mad.CompPIRLinkLatency, 488, 24},
		field{mad.CompPIRLinkSpeedExtActive, 528, 4}, field{mad.CompPIRLinkSpeedExtSupported, 532, 4},
		field{mad.CompPIRLinkSpeedExtEnabled, 539, 5})

	slvlLayout = newLayout(field{mad.CompSLVLLID, 0, 16}, field{mad.CompSLVLInPort, 16, 8},
		field{mad.CompSLVLOutPort, 24, 8})
	switchLayout = newLayout(field{mad.CompSWIRLID, 0, 16})
	lftLayout    = newLayout(field{mad.CompLFTLID, 0, 16}, field{mad.CompLFTBlock, 16, 16})
	mftLayout    = newLayout(field{mad.CompMFTLID, 0, 16}, field{mad.CompMFTPosition, 16, 4}, field{mad.CompMFTBlock, 23, 9})
	smInfoLayout = newLayout(field{mad.CompSMIRLID, 0, 16}, field{mad.CompSMIRGUID, 32, 64},
		field{mad.CompSMIRActCount, 160, 32}, field{mad.CompSMIRPriority, 192, 4}, field{mad.CompSMIRState, 196, 4})
	linkLayout = newLayout(field{mad.CompLRFromLID, 0, 16}, field{mad.CompLRFromPort, 16, 8},
		field{mad.CompLRToPort, 24, 8}, field{mad.CompLRToLID, 32, 16})
	guidLayout = newLayout(field{mad.CompGIRLID, 0, 16}, field{mad.CompGIRBlock, 16, 8})
	pkeyLayout = newLayout(field{mad.CompPKTRLID, 0, 16}, field{mad.CompPKTRBlock, 16, 16},
		field{mad.CompPKTRPort, 32, 8})
	vlArbLayout = newLayout(field{mad.CompVLARLID, 0, 16}, field{mad.CompVLARPort, 16, 8}, field{mad.CompVLARBlock, 24, 8})

	serviceLayout = func() *layout {
		f := []field{{mad.CompSRServiceID, 0, 64}, {mad.CompSRGID, 64, 128}, {mad.CompSRPKey, 192, 16},
			{mad.CompSRKey, 256, 128}, {mad.CompSRName, 384, 512}}
		bit, off := mad.CompSRData, uint16(896)
		for _, k := range []struct{ n, bits uint16 }{{16, 8}, {8, 16}, {4, 32}, {2, 64}} {
			for range k.n {
				f = append(f, field{bit, off, k.bits})
				bit, off = bit<<1, off+k.bits
			}
		}
		return newLayout(f...)
	}()
	informLayout = newLayout(field{mad.CompIIRSubscriberGID, 0, 128}, field{mad.CompIIREnum, 128, 16})
)
