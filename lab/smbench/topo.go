package main

import (
	"fmt"
	"os"
	"path/filepath"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// fabrics are the subnets of the tables, by name. The hosts of a two-level tree
// fill half of each leaf's ports.
var fabrics = []struct {
	name string
	make func() *fabric.Fabric
}{
	{conformanceFabric, func() *fabric.Fabric { return gen.FatTree2(8, 4) }},
	{"b2b", gen.Pair},
	{"sw2", func() *fabric.Fabric { return gen.Star(2, 36) }},
	{"ring-8", func() *fabric.Fabric { return gen.Ring(8, 4) }},
	{"mesh-4x4", func() *fabric.Fabric { return gen.Mesh([]int{4, 4}, 3) }},
	{"torus-4x4", func() *fabric.Fabric { return gen.Torus([]int{4, 4}, 4) }},
	{"ft2-108", func() *fabric.Fabric { return gen.FatTree2(36, 6) }},
	{"ft2-648", func() *fabric.Fabric { return gen.FatTree2(36, 36) }},
	{"ft3-972", func() *fabric.Fabric { return gen.FatTree3(36, 3, 18) }},
	{"ft2-1024", func() *fabric.Fabric { return gen.FatTree2(64, 32) }},
	{"ft3-5184", func() *fabric.Fabric { return gen.FatTree3(36, 16, 18) }},
}

func fabricByName(name string) (*fabric.Fabric, error) {
	for _, f := range fabrics {
		if f.name == name {
			return f.make(), nil
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a fabric of the table nor a file in ibnetdiscover's form", name)
	}
	defer f.Close()
	return fabric.ReadText(name, f)
}

// topoFile writes a fabric for a simulator.
func topoFile(dir, name string) (string, *fabric.Fabric, error) {
	f, err := fabricByName(name)
	if err != nil {
		return "", nil, err
	}
	// opensm queries Mellanox nodes for a vendor attribute; nodes without a vendor
	// cost it less, and are what the figures of others were taken with.
	f = f.Clone()
	for i := range f.Nodes {
		f.Nodes[i].VendorID, f.Nodes[i].DeviceID = 0, 0
	}
	path := filepath.Join(dir, "topology")
	return path, f, os.WriteFile(path, []byte(gen.Text(f)), 0o644)
}
