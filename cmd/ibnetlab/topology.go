package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// maxNodes is how many hosts and switches have room in the unicast LIDs (1 to 0xbfff).
const maxNodes = 0xbfff

// size is a number on which a shape depends.
type size struct {
	name       string
	value      int
	least, top int
	usage      string
}

// shape is a kind of subnet: its sizes, their nodes for given values, and the
// subnet.
type shape struct {
	name, short string
	sizes       []size
	nodes       func(v []int) int
	make        func(v []int) *fabric.Fabric
}

var shapes = []shape{
	{"star", "one switch with hosts",
		[]size{{"hosts", 4, 1, 254, "hosts"}},
		func(v []int) int { return v[0] + 1 },
		func(v []int) *fabric.Fabric { return gen.Star(v[0], max(v[0], 8)) }},
	{"fat-tree", "two levels of switches; each leaf has radix/2 hosts",
		[]size{{"radix", 8, 2, 254, "ports of each switch, even"}, {"leaves", 4, 1, 254, "leaf switches"}},
		func(v []int) int { return v[1]*(v[0]/2+2) + 1 },
		func(v []int) *fabric.Fabric { return gen.FatTree2(v[0], v[1]) }},
	{"fat-tree3", "three levels of switches, in pods of radix/2 leaves",
		[]size{{"radix", 8, 2, 254, "ports of each switch, even"}, {"pods", 4, 1, 254, "pods"},
			{"hosts", 4, 1, 127, "hosts of each leaf, at most half of radix"}},
		func(v []int) int { return v[1]*v[0]/2*(v[2]+3) + 1 },
		func(v []int) *fabric.Fabric { return gen.FatTree3(v[0], v[1], v[2]) }},
	{"ring", "switches in a ring",
		[]size{{"switches", 4, 2, maxNodes, "switches"}, {"hosts", 2, 1, 252, "hosts of each switch"}},
		func(v []int) int { return v[0] * (v[1] + 1) },
		func(v []int) *fabric.Fabric { return gen.Ring(v[0], v[1]) }},
	{"torus", "a grid of switches whose ends meet",
		[]size{{"x", 3, 2, 1000, "switches in a row"}, {"y", 3, 2, 1000, "rows"}, {"hosts", 1, 1, 250, "hosts of each switch"}},
		func(v []int) int { return v[0] * v[1] * (v[2] + 1) },
		func(v []int) *fabric.Fabric { return gen.Torus(v[:2], v[2]) }},
	{"mesh", "a grid of switches",
		[]size{{"x", 3, 2, 1000, "switches in a row"}, {"y", 3, 2, 1000, "rows"}, {"hosts", 1, 1, 250, "hosts of each switch"}},
		func(v []int) int { return v[0] * v[1] * (v[2] + 1) },
		func(v []int) *fabric.Fabric { return gen.Mesh(v[:2], v[2]) }},
}

// build makes the subnet, or says which of the sizes cannot be.
func (s *shape) build(v []int) (f *fabric.Fabric, err error) {
	for i, z := range s.sizes {
		if v[i] < z.least || v[i] > z.top {
			return nil, fmt.Errorf("--%s=%d: want %d to %d", z.name, v[i], z.least, z.top)
		}
		if z.name == "radix" && v[i]%2 != 0 {
			return nil, fmt.Errorf("--radix=%d: want an even number (half of the ports lead up, half down)", v[i])
		}
	}
	if s.name == "fat-tree3" && v[2] > v[0]/2 {
		return nil, fmt.Errorf("--hosts=%d: a leaf of --radix=%d has at most %d", v[2], v[0], v[0]/2)
	}
	if n := s.nodes(v); n > maxNodes {
		return nil, fmt.Errorf("about %d nodes: a subnet has LIDs for %d", n, maxNodes)
	}
	// What does not fit together shows where the cables are put in.
	defer func() {
		if r := recover(); r != nil {
			f, err = nil, fmt.Errorf("too few switch ports for these sizes (%v)", r)
		}
	}()
	return s.make(v), nil
}

func topologyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "topology KIND",
		Short: "print a fabric in ibnetdiscover's format, for shell --topology and --fabric",
		Example: `  ibnetlab topology fat-tree > small.txt                       # 16 hosts, 6 switches
  ibnetlab topology fat-tree3 --radix 16 --pods 8 --hosts 8    # 512 hosts, 160 switches
  ibnetlab topology torus --x 4 --y 4 --hosts 2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("no kind of fabric given; for a list: ibnetlab topology --help")
			}
			return fmt.Errorf("unknown kind %q; for a list: ibnetlab topology --help", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	for _, s := range shapes {
		v := make([]int, len(s.sizes))
		sub := &cobra.Command{
			Use:   s.name,
			Short: s.short,
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				f, err := s.build(v)
				if err != nil {
					return err
				}
				return fabric.WriteText(cmd.OutOrStdout(), f)
			},
		}
		for i, z := range s.sizes {
			sub.Flags().IntVar(&v[i], z.name, z.value, z.usage)
			_ = sub.RegisterFlagCompletionFunc(z.name, cobra.NoFileCompletions)
		}
		c.AddCommand(sub)
	}
	return c
}
