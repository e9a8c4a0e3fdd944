package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"ibnetworkd/internal/testkit"
)

func TestRoundTrip(t *testing.T) {
	r := &Report{}
	r.Add(Capture, []byte("{}"))
	r.Add("system/etc/os-release", []byte("ID=debian\n"))
	r.Add("../passwd", []byte("x"))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var a, b bytes.Buffer
	testkit.NoError(t, r.Write(&a, "ibnetwork-report", at))
	if err := r.Write(&b, "ibnetwork-report", at); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Fatalf("the same report gave other bytes (%v)", err)
	}
	if !IsArchive(a.Bytes()) || IsArchive([]byte("{}")) {
		t.Error("an archive is not known as one")
	}
	got, err := Read(&a)
	testkit.NoError(t, err)
	testkit.Diff(t, "", r.Files, got.Files)
	if len(r.Omitted) != 1 || r.Omitted[0].What != "../passwd" {
		t.Errorf("left out %v", r.Omitted)
	}
	dir := t.TempDir()
	for p, text := range r.Files {
		testkit.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755))
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, p), text, 0o600))
	}
	if got, err = ReadDir(dir); err != nil {
		t.Fatal(err)
	}
	testkit.Diff(t, "", r.Files, got.Files)
}

func TestCopy(t *testing.T) {
	fsys := fstest.MapFS{
		"sys/class/infiniband/a/fw_ver":       {Data: []byte("1.2\n")},
		"sys/class/infiniband/a/ports/1/rate": {Data: []byte("100 Gb/sec\n")},
		"sys/class/infiniband/b/fw_ver":       {Data: []byte{0xff, 1}},
		"sys/class/infiniband/c/fw_ver":       {Data: bytes.Repeat([]byte("x"), MaxFile+1)},
		"proc/modules":                        {Data: []byte("ib_ipoib 1\next4 2\nmlx5_core 3\n")},
		"etc/passwd":                          {Data: []byte("root\n")},
	}
	r := &Report{}
	r.Copy(fsys, []Rule{{Glob: "sys/class/infiniband/*/fw_ver"}, {Glob: "sys/class/infiniband/*/ports/*/rate"},
		{Glob: "sys/class/infiniband/*/ports"}, {Glob: "proc/modules", Keep: "ib_ mlx"}, {Glob: "none/*"}})
	got := map[string]string{}
	for p, text := range r.Files {
		got[p] = string(text)
	}
	testkit.Diff(t, "", map[string]string{
		"system/sys/class/infiniband/a/fw_ver":       "1.2\n",
		"system/sys/class/infiniband/a/ports/1/rate": "100 Gb/sec\n",
		"system/proc/modules":                        "ib_ipoib 1\nmlx5_core 3\n",
	}, got)
	testkit.Diff(t, "", []Omission{{"/sys/class/infiniband/b/fw_ver", "not text"},
		{"/sys/class/infiniband/c/fw_ver", "larger than 262144 bytes"}}, r.Omitted)
}

// An archive from elsewhere is refused, and never unpacked beyond the bounds.
func TestReadRefuses(t *testing.T) {
	archive := func(files ...*tar.Header) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		zero := make([]byte, 1<<20)
		for _, h := range files {
			testkit.NoError(t, w.WriteHeader(h))
			for n := h.Size; n > 0; n -= int64(len(zero)) {
				if _, err := w.Write(zero[:min(n, int64(len(zero)))]); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = w.Close()
		_ = z.Close()
		return b.Bytes()
	}
	for name, tc := range map[string]struct {
		in   []byte
		want string
	}{
		"empty":      {nil, "not an archive"},
		"no capture": {archive(&tar.Header{Name: "r/x", Size: 1}), "it has no capture.json"},
		"large": {archive(&tar.Header{Name: "r/capture.json", Size: 1}, &tar.Header{Name: "r/x", Size: MaxBig + 1}),
			"more than a report holds"},
		"short":  {archive(&tar.Header{Name: "r/capture.json", Size: 1 << 20})[:900], "damaged archive"},
		"climbs": {archive(&tar.Header{Name: "r/../../capture.json", Size: 1}), "it has no capture.json"},
	} {
		if _, err := Read(bytes.NewReader(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Whatever the bytes are: an error, or a report within its bounds that is
// written and read back the same.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	r := &Report{}
	r.Add(Capture, []byte("{}"))
	testkit.NoError(f, r.Write(&b, "r", time.Time{}))
	f.Add(b.Bytes())
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		total := 0
		for p, text := range r.Files {
			if !fs.ValidPath(p) {
				t.Errorf("path %q", p)
			}
			total += len(text)
		}
		if total > MaxTotal || len(r.Files) > MaxFiles {
			t.Errorf("%d bytes in %d files", total, len(r.Files))
		}
		var b bytes.Buffer
		testkit.NoError(t, r.Write(&b, "r", time.Time{}))
		again, err := Read(&b)
		testkit.NoError(t, err)
		testkit.Diff(t, "", r.Files, again.Files)
	})
}
