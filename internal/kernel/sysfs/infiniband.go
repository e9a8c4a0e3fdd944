package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
)

// IBDevice is an entry of /sys/class/infiniband.
type IBDevice struct {
	Name     string
	NodeType ib.NodeType // 0 if absent
	NodeGUID ib.GUID     // 0 if absent
	Bus      BusDevice   // zero for devices of software
	Ports    []IBPort
}

// BusDevice is the device below an RDMA device or network interface.
type BusDevice struct {
	Name   string // "0000:3b:00.0"
	Bus    string // "pci"
	Driver string // "mlx5_core"
}

// SRIOV is the state of a physical function.
type SRIOV struct {
	NumVFs, TotalVFs int
	Autoprobe        *bool    // sriov_drivers_autoprobe, nil if absent
	VFs              []string // bus names of the virtual functions, by index
}

// IBPort is a port of an RDMA device.
type IBPort struct {
	Num       int // from 1
	LinkLayer ib.LinkLayer
	State     ib.PortState // 0 if absent
	Phys      ib.PhysState // 0 if absent
	LID       ib.LID
	SMLID     ib.LID
	SMSL      *uint8
	CapMask   *uint32 // PortInfo:CapabilityMask
	// GID is entry 0 of the port's table: prefix and GUID of an InfiniBand
	// port. Zero if absent.
	GID ib.GID
}

// GUID is the GUID of an InfiniBand port; 0 on other link layers, where GID 0
// comes from a MAC address.
func (p IBPort) GUID() ib.GUID {
	if p.LinkLayer != ib.LinkLayerInfiniBand {
		return 0
	}
	return p.GID.GUID()
}

// IBDevices reads all RDMA devices with their ports. A device that goes away
// while it is read is left out; other errors are joined and the devices that
// could be read are given.
func (f FS) IBDevices() ([]IBDevice, error) {
	ns, err := names(filepath.Join(f.root, "class/infiniband"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the subsystem is not loaded
		return nil, err
	}
	var out []IBDevice
	var errs []error
	for _, n := range ns {
		d, err := f.IBDevice(n)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, d)
		}
	}
	return out, errors.Join(errs...)
}

// IBDevice reads one device with its ports.
func (f FS) IBDevice(name string) (IBDevice, error) {
	dir, err := f.join("class", "infiniband", name)
	if err != nil {
		return IBDevice{}, err
	}
	if _, err := os.Stat(dir); err != nil {
		return IBDevice{}, err
	}
	d := IBDevice{Name: name, Bus: busDevice(dir + "/device")}
	var errs []error
	if s := text(dir + "/node_type"); s != "" {
		n, _, _ := strings.Cut(s, ":")
		v, err := strconv.ParseUint(n, 10, 8)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/node_type: %.64q is not a node type", dir, s))
		}
		d.NodeType = ib.NodeType(v)
	}
	d.NodeGUID, err = guid(dir + "/node_guid")
	errs = append(errs, err)
	ports, err := names(dir + "/ports")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, n := range ports {
		num, err := strconv.Atoi(n)
		if err != nil || num < 1 || num > 255 {
			continue
		}
		p, err := ibPort(dir+"/ports/"+n, num)
		errs = append(errs, err)
		d.Ports = append(d.Ports, p)
	}
	return d, errors.Join(errs...)
}

// IBPort reads one port, for the port state where RDMA netlink is not
// available.
func (f FS) IBPort(dev string, port int) (IBPort, error) {
	dir, err := f.portDir(dev, port)
	if err != nil {
		return IBPort{}, err
	}
	if _, err := os.Stat(dir); err != nil {
		return IBPort{}, err
	}
	return ibPort(dir, port)
}

func (f FS) portDir(dev string, port int) (string, error) {
	return f.join("class", "infiniband", dev, "ports", strconv.Itoa(port))
}

func guid(path string) (ib.GUID, error) {
	s := text(path)
	if s == "" {
		return 0, nil
	}
	g, err := ib.ParseGUID(s)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func ibPort(dir string, num int) (IBPort, error) {
	p := IBPort{Num: num}
	var errs []error
	fail := func(file string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/%s: %w", dir, file, err))
		}
	}
	var err error
	if s := text(dir + "/link_layer"); s != "" {
		p.LinkLayer, err = ib.ParseLinkLayer(s)
		fail("link_layer", err)
	}
	if s := text(dir + "/state"); s != "" {
		p.State, err = ib.ParsePortState(s)
		fail("state", err)
	}
	if s := text(dir + "/phys_state"); s != "" {
		p.Phys, err = ib.ParsePhysState(s)
		fail("phys_state", err)
	}
	small := func(file string, bits int) *uint64 {
		v, err := number(dir + "/" + file)
		if err == nil && v != nil && *v>>bits != 0 {
			err = fmt.Errorf("%s/%s: %#x does not fit into %d bits", dir, file, *v, bits)
			v = nil
		}
		if err != nil {
			errs = append(errs, err)
		}
		return v
	}
	// An OPA port has LIDs of 32 bits; a 16-bit one is all that a subnet
	// manager of InfiniBand deals with.
	if v := small("lid", 32); v != nil {
		p.LID = ib.LID(*v)
	}
	if v := small("sm_lid", 32); v != nil {
		p.SMLID = ib.LID(*v)
	}
	if v := small("sm_sl", 8); v != nil {
		p.SMSL = new(uint8(*v))
	}
	if v := small("cap_mask", 32); v != nil {
		p.CapMask = new(uint32(*v))
	}
	if s := text(dir + "/gids/0"); s != "" {
		p.GID, err = ib.ParseGID(s)
		fail("gids/0", err)
	}
	return p, errors.Join(errs...)
}

// GIDEntry is a used entry of a port's GID table.
type GIDEntry struct {
	Index  int
	GID    ib.GID
	Type   string // "IB/RoCE v1", "RoCE v2"; "" if the kernel does not say
	Netdev string // "" for none
}

// GIDTableSize is the number of entries of a port's GID table, used or not.
func (f FS) GIDTableSize(dev string, port int) (int, error) {
	dir, err := f.portDir(dev, port)
	if err != nil {
		return 0, err
	}
	ns, err := names(dir + "/gids")
	return len(ns), err
}

// GIDs reads the used entries of a port's GID table, in order.
func (f FS) GIDs(dev string, port int) ([]GIDEntry, error) {
	return f.GIDsBelow(dev, port, math.MaxInt, 0)
}

// GIDsBelow reads the used entries with an index below end, and those behind with less than spare
// free ones before them, in order: each entry is a file.
func (f FS) GIDsBelow(dev string, port, end, spare int) ([]GIDEntry, error) {
	dir, err := f.portDir(dev, port)
	if err != nil {
		return nil, err
	}
	ns, err := names(dir + "/gids")
	if err != nil {
		return nil, err
	}
	var out []GIDEntry
	for _, n := range ns {
		i, err := strconv.Atoi(n)
		if err != nil || i >= end {
			continue
		}
		s := text(dir + "/gids/" + n)
		if s == "" {
			continue // a free entry of a RoCE port may not be readable
		}
		g, err := ib.ParseGID(s)
		if err != nil {
			return out, fmt.Errorf("%s/gids/%s: %w", dir, n, err)
		}
		if g.IsZero() || (g.GUID() == 0 && g.Prefix() == ib.DefaultPrefix) {
			continue
		}
		out = append(out, GIDEntry{
			Index: i, GID: g,
			Type:   text(dir + "/gid_attrs/types/" + n),
			Netdev: text(dir + "/gid_attrs/ndevs/" + n),
		})
		end = max(end, i+1+spare)
	}
	return out, nil
}

// UMAD is a user-space MAD device of a port.
type UMAD struct {
	Name  string // "umad0"; the node is /dev/infiniband/umad0
	ISSM  string // "issm0", "" if absent
	IBDev string
	Port  int
}

// ErrNoUMAD means that the module ib_umad is not loaded.
var ErrNoUMAD = errors.New("the kernel offers no MAD devices (module ib_umad is not loaded)")

// UMADs lists the MAD devices; an error if one cannot be read and has not gone.
func (f FS) UMADs() ([]UMAD, error) {
	dir := filepath.Join(f.root, "class/infiniband_mad")
	ns, err := names(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoUMAD
	}
	if err != nil {
		return nil, err
	}
	issm := map[string]string{}
	var out []UMAD
	for _, n := range ns {
		d := dir + "/" + n
		dev, err := read(d + "/ibdev")
		var num string
		if err == nil {
			num, err = read(d + "/port")
		}
		if err != nil {
			if gone(err) {
				continue // abi_version, or a device that is going away
			}
			return nil, err // one that is left out is not one that is not there
		}
		port, err := strconv.ParseUint(strings.TrimSpace(num), 0, 8)
		if dev == "" || err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(n, "umad"):
			out = append(out, UMAD{Name: n, IBDev: dev, Port: int(port)})
		case strings.HasPrefix(n, "issm"):
			issm[dev+"/"+strconv.Itoa(int(port))] = n
		}
	}
	for i := range out {
		out[i].ISSM = issm[out[i].IBDev+"/"+strconv.Itoa(out[i].Port)]
	}
	return out, nil
}

// gone reports whether an attribute could not be read because it is not there.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENODEV)
}

// NodeDesc reads a device's node description.
func (f FS) NodeDesc(dev string) (string, error) {
	p, err := f.join("class", "infiniband", dev, "node_desc")
	if err != nil {
		return "", err
	}
	return read(p)
}

// SetNodeDesc sets a device's node description, at most 64 bytes. The kernel takes
// all that is written, a newline too, which would go out on the wire
// (node_desc_store).
func (f FS) SetNodeDesc(dev, desc string) error {
	p, err := f.join("class", "infiniband", dev, "node_desc")
	if err != nil {
		return err
	}
	if len(desc) > 64 {
		return fmt.Errorf("node description %.70q is longer than 64 bytes", desc)
	}
	return writeEnded(p, desc, "")
}
