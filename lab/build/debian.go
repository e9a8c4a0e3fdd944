package build

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bootModules are what a guest with Debian's modular kernel needs before it can
// reach its host, and the InfiniBand stack; a test loads others with modprobe.
var bootModules = []string{
	"virtio_pci", "9pnet_virtio", "9p", "overlay", "configfs", "virtio_net",
	"ib_umad", "ib_uverbs", "ib_ipoib", "rdma_ucm",
}

var abiPattern = regexp.MustCompile(`linux-image-([0-9][^ ]*)-amd64`)

// DebianKernel fetches a stock kernel of Debian with its headers, without
// installing them, and unpacks it for QEMU's direct boot.  series is "6.1", the
// kernel of bookworm, or "6.12", that of bookworm-backports.
func (b *Builder) DebianKernel(ctx context.Context, series string) (*Kernel, error) {
	if !slices.Contains(AllSeries, series) {
		return nil, fmt.Errorf("kernel series %q: want %s", series, strings.Join(AllSeries, " or "))
	}
	if err := b.need(ctx, map[string]string{"qemu-system-x86_64": "qemu-system-x86"}); err != nil {
		return nil, err
	}
	if err := b.need(ctx, buildTools); err != nil {
		return nil, err
	}
	if err := b.need(ctx, map[string]string{"modprobe": "kmod", "zstd": "zstd", "/usr/include/libelf.h": "libelf-dev"}); err != nil {
		return nil, err
	}
	dir, err := b.debianTree(ctx, series)
	if err != nil {
		return nil, err
	}
	abi := strings.TrimPrefix(filepath.Base(dir), "debian-")
	release := abi + "-amd64"
	headers := filepath.Join(dir, "usr/src/linux-headers-"+release)
	k := &Kernel{
		Image: filepath.Join(dir, "vmlinux"), Release: release, Tree: headers, Arch: "x86",
		// which needs pahole and is not used
		Modules: dir, id: key("debian kernel", abi), make: []string{"-C", headers, "CONFIG_DEBUG_INFO_BTF_MODULES="},
	}
	seen := map[string]bool{}
	for _, m := range bootModules {
		out, err := output(ctx, "modprobe", "-d", dir, "-S", release, "--show-depends", m)
		if err != nil {
			return nil, err
		}
		for l := range strings.Lines(out) {
			f := strings.Fields(l)
			if len(f) >= 2 && f[0] == "insmod" && !seen[f[1]] {
				seen[f[1]] = true
				k.Boot = append(k.Boot, f[1])
			}
		}
	}
	return k, nil
}

// aptOptions lets apt read the package lists that have a kernel series.
func (b *Builder) aptOptions(series string) ([]string, error) {
	if series == Series {
		return nil, nil
	}
	dir := filepath.Join(b.Cache, "apt-"+series)
	if err := os.MkdirAll(filepath.Join(dir, "lists/partial"), 0o755); err != nil {
		return nil, err
	}
	list := filepath.Join(dir, "sources.list")
	line := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian " + Suite + "-backports main\n"
	if err := os.WriteFile(list, []byte(line), 0o644); err != nil {
		return nil, err
	}
	return []string{"-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=-", "-o", "Dir::State::lists=" + dir + "/lists",
		"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="}, nil
}

// debianTree returns the folder with the unpacked packages.
func (b *Builder) debianTree(ctx context.Context, series string) (string, error) {
	m, _ := filepath.Glob(filepath.Join(b.Cache, "kernel", "debian-"+series+".*"))
	for _, d := range m {
		if !strings.HasSuffix(d, ".partial") && used(d) {
			return d, nil
		}
	}
	apt, err := b.aptOptions(series)
	if err != nil {
		return "", err
	}
	abi, err := b.debianABI(ctx, series, apt)
	if err != nil {
		return "", err
	}
	r := abi + "-amd64"
	pkgs := []string{"linux-image-" + r, "linux-headers-" + r}
	deps, err := output(ctx, "apt-cache", append(apt, "depends", "linux-headers-"+r)...)
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(deps) {
		p := strings.TrimPrefix(strings.TrimSpace(l), "Depends: ")
		if strings.HasPrefix(p, "linux-headers-") || strings.HasPrefix(p, "linux-kbuild-") || strings.HasPrefix(p, "linux-compiler-") {
			pkgs = append(pkgs, p)
		}
	}
	dir := filepath.Join(b.Cache, "kernel", "debian-"+abi)
	return dir, b.once(ctx, "Debian kernel", dir, func(tmp string) error {
		for _, pkg := range pkgs {
			deb, err := b.download(ctx, filepath.Join(b.Cache, "debs"), pkg, apt...)
			if err != nil {
				return err
			}
			b.say("unpacking %s", pkg)
			if err := b.run(ctx, step{what: "unpacking " + pkg}, "dpkg-deb", "-x", deb, tmp); err != nil {
				return err
			}
			os.Remove(deb)
		}
		// The headers expect to lie in /usr/src.
		mk := filepath.Join(tmp, "usr/src/linux-headers-"+r, "Makefile")
		text, err := os.ReadFile(mk)
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte("/usr/src/"), []byte(filepath.Join(dir, "usr/src")+"/"))
		if err := os.WriteFile(mk, text, 0o644); err != nil {
			return err
		}
		if err := b.run(ctx, step{what: "depmod"}, "depmod", "-b", tmp, r); err != nil {
			return err
		}
		return unpackKernel(filepath.Join(tmp, "boot/vmlinuz-"+r), filepath.Join(tmp, "vmlinux"))
	})
}

// debianABI reads from the package lists which kernel of a series is current.
func (b *Builder) debianABI(ctx context.Context, series string, apt []string) (string, error) {
	ask := func() string {
		out, err := output(ctx, "apt-cache", append(apt, "depends", "linux-image-amd64")...)
		if err != nil {
			return ""
		}
		for _, m := range abiPattern.FindAllStringSubmatch(out, -1) {
			if strings.HasPrefix(m[1], series+".") {
				return m[1]
			}
		}
		return ""
	}
	if abi := ask(); abi != "" {
		return abi, nil
	}
	if err := b.aptUpdate(ctx, apt...); err != nil {
		return "", err
	}
	if abi := ask(); abi != "" {
		return abi, nil
	}
	return "", fmt.Errorf("%w: no Debian kernel %s in the package lists", ErrUnavailable, series)
}

// unpackKernel writes the ELF kernel that a bzImage carries: QEMU enters it at
// once, while unpacking it in an emulated machine takes ten seconds.  The offsets
// are those of Documentation/arch/x86/boot.rst.
func unpackKernel(bz, to string) error {
	text, err := os.ReadFile(bz)
	if err != nil {
		return err
	}
	if len(text) < 0x260 {
		return fmt.Errorf("%s: not a kernel", bz)
	}
	start := (uint64(text[0x1f1]) + 1) * 512
	start += uint64(binary.LittleEndian.Uint32(text[0x248:]))
	end := start + uint64(binary.LittleEndian.Uint32(text[0x24c:]))
	if end > uint64(len(text)) || end-start < 8 {
		return fmt.Errorf("%s: its header is damaged", bz)
	}
	payload := text[start:end]
	var out []byte
	switch {
	case bytes.HasPrefix(payload, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return err
		}
		out, err = io.ReadAll(r)
		if err != nil {
			return err
		}
	case bytes.HasPrefix(payload, []byte{0xfd, '7', 'z', 'X', 'Z'}):
		out, err = filter(payload, "xz", "-dc")
	case bytes.HasPrefix(payload, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		out, err = filter(payload, "zstd", "-dc")
	default:
		err = fmt.Errorf("%s: unknown compression", bz)
	}
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(out, []byte("\x7fELF")) {
		return fmt.Errorf("%s: its payload is not an ELF file", bz)
	}
	return os.WriteFile(to, out, 0o644)
}

// filter runs a decompressor.  The payload is followed by its length, which the
// programs take for trailing garbage: output that is there counts.
func filter(in []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if len(out) > 0 {
		return out, nil
	}
	return nil, fmt.Errorf("%s: %w", name, err)
}
