package ib_test

import (
	"fmt"

	"ibnetworkd/ib"
)

func ExampleParseGUID() {
	g, err := ib.ParseGUID("0x0002c903000abcde")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g)
	fmt.Println(ib.MakeGID(ib.DefaultPrefix, g))
	// Output:
	// 0x0002c903000abcde
	// fe80:0000:0000:0000:0002:c903:000a:bcde
}

// Two ports can communicate if their keys have the same base and one of them is a
// full member.
func ExamplePKey_Matches() {
	full, limited := ib.PKey(0x8001), ib.PKey(0x0001)
	fmt.Println(full, full.Base(), full.Full())
	fmt.Println(full.Matches(limited), limited.Matches(limited))
	// Output:
	// 0x8001 0x0001 true
	// true false
}

// An InfiniBand MTU is a code in a MAD; an interface in datagram mode has four
// bytes less for the IPoIB header.
func ExampleMTU() {
	m := ib.MTUFromBytes(4096)
	fmt.Println(uint8(m), m.Bytes(), m.IPoIBDatagram())
	// Output: 5 4096 4092
}

func ExampleHWAddr() {
	a, err := ib.ParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("QPN %#x, GUID %v, connected mode %v\n", a.QPN(), a.GUID(), a.SupportsConnected())
	// Output: QPN 0x48, GUID 0x0002c903000abcde, connected mode true
}
