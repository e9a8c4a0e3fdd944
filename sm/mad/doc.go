// Package mad is the codec of management datagrams: the 256-byte MAD with its
// common header, subnet management packets by LID and by directed route,
// subnet administration with its records and component masks, performance
// management, and the segmentation and reassembly of long messages (RMPP) as
// two state machines without a clock.
//
// Layouts are those of the InfiniBand Architecture Specification, volume 1,
// chapters 13 to 16 ("IBTA"); every multi-byte field on the wire is big-endian.
// An attribute type has Append, which appends exactly its wire length, and
// Decode, which needs at least that many bytes and ignores what follows. To
// fill a new SMP write
//
//	pi.Append(smp.Data[:0])
//
// Encoding and decoding an SMP allocates nothing. The package does no I/O and
// never panics on input.
package mad
