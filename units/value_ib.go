package units

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"ibnetworkd/ib"
)

func parseGUID(s string) (ib.GUID, error) {
	g, err := ib.ParseGUID(s)
	if err == nil && g.IsZero() {
		return g, errors.New("GUID 0 is not valid")
	}
	if err != nil {
		err = fmt.Errorf("%w; a GUID has 16 hexadecimal digits: 0x0002c903000abcdf or 0002:c903:000a:bcdf", err)
	}
	return g, err
}

func parsePKey(s string) (ib.PKey, error) {
	k, err := ib.ParsePKey(s)
	if err == nil && !k.IsValid() {
		return k, fmt.Errorf("P_Key %s is not valid (0x0000 and 0x8000 are reserved)", k)
	}
	return k, err
}

func parseVFGUID(s string) (VFGUID, error) {
	if s == "auto" {
		return VFGUID{Auto: true}, nil
	}
	g, err := parseGUID(s)
	if err != nil {
		return VFGUID{}, fmt.Errorf("%w; or write auto", err)
	}
	return VFGUID{GUID: g}, nil
}

// parseSubnetPrefix reads 0xfe80000000000000, fe80:0000:0000:0000 or fe80::/64.
func parseSubnetPrefix(s string) (uint64, error) {
	t := strings.TrimSuffix(s, "/64")
	if g, err := ib.ParseGUID(t); err == nil {
		return checkSubnetPrefix(uint64(g), s)
	}
	g, err := ib.ParseGID(t)
	if err != nil || g.GUID() != 0 {
		return 0, fmt.Errorf("%q is not a subnet prefix of 64 bits (0xfe80000000000000, fe80:0000:0000:0000 or fe80::/64)", ib.Clip(s))
	}
	return checkSubnetPrefix(g.Prefix(), s)
}

func checkSubnetPrefix(p uint64, s string) (uint64, error) {
	if p == 0 || p>>56 == 0xff {
		return 0, fmt.Errorf("%q cannot be a subnet prefix", ib.Clip(s))
	}
	return p, nil
}

func parseAbsPath(s string) (string, error) {
	if !strings.HasPrefix(s, "/") || len(s) >= 4096 {
		return "", fmt.Errorf("%q is not an absolute path", ib.Clip(s))
	}
	for _, e := range strings.Split(s, "/") {
		if e == ".." {
			return "", fmt.Errorf("%q contains \"..\"", ib.Clip(s))
		}
	}
	return s, nil
}

// parseNamespace reads a name in NamespaceDir or an absolute path.
func parseNamespace(s string) (string, error) {
	switch {
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) || strings.HasSuffix(s, "/"):
	case strings.HasPrefix(s, "/"):
		return parseAbsPath(s)
	case s != "." && s != ".." && len(s) <= 255 && !strings.Contains(s, "/"):
		return s, nil
	}
	return "", fmt.Errorf("%q is neither the name of a network namespace in %s nor an absolute path to one", ib.Clip(s), NamespaceDir)
}

// parseRoutingEngines reads a comma-separated list of engine names.
func parseRoutingEngines(s string) (string, error) {
	var out []string
	for _, e := range strings.Split(s, ",") {
		e = strings.TrimSpace(e)
		if e == "" || strings.Trim(e, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return "", fmt.Errorf("%q is not a list of routing engines such as minhop, updn or ftree", ib.Clip(s))
		}
		out = append(out, e)
	}
	return strings.Join(out, ","), nil
}

func parseModule(s string) (string, error) {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || len(s) > 64 || s == "" {
		return "", fmt.Errorf("%q is not a kernel module's name", ib.Clip(s))
	}
	return s, nil
}

func parseDeviceName(s string) (string, error) {
	if len(s) > 63 || s == "" || s[0] == '-' ||
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || s == "." || s == ".." {
		return "", fmt.Errorf("%q is not an RDMA device name", ib.Clip(s))
	}
	return s, nil
}

func parseMAC(s string) (ib.HWAddr, error) {
	a, err := ib.ParseHWAddr(s)
	if err == nil && a.Len() != 6 {
		return a, fmt.Errorf("%q has %d bytes, a MAC address has 6", ib.Clip(s), a.Len())
	}
	if err == nil && a.Bytes()[0]&1 != 0 {
		return a, fmt.Errorf("%q is a multicast address, which a function cannot have: the first byte must be even", ib.Clip(s))
	}
	return a, err
}
