package main

import (
	"ibnetworkd/sm/serve"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/ibsim"
)

// simHost is the one port that the simulator's environment names.
type simHost struct{}

func (simHost) Ports() ([]serve.Port, error) {
	return []serve.Port{{Device: "ibsim0", Num: 1}}, nil
}

func (simHost) Open(serve.Port) (transport.Transport, error) { return ibsim.Open(ibsim.Options{}) }
