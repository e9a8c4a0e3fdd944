package picture

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// shapes are fabrics to draw: from two hosts to 5184.
func shapes() map[string]*fabric.Fabric {
	out := map[string]*fabric.Fabric{
		"pair": gen.Pair(), "sw2": gen.Star(2, 36), "star16": gen.Star(16, 36), "ft2-108": gen.FatTree2(36, 6), "ft2-648": gen.FatTree2(36, 36),
		"ft3-972": gen.FatTree3(18, 12, 9), "ft3-5184": gen.FatTree3(36, 16, 18), "torus8x8": gen.Torus([]int{8, 8}, 2),
		"mesh4x4":    gen.Mesh([]int{4, 4}, 1),
		"torus4x4x4": gen.Torus([]int{4, 4, 4}, 1), "ring": gen.Ring(6, 2), "irregular": gen.Random(7, 14, 12, 60),
		"uneven": gen.Uneven(3, 36, 8, 3, 100), "irregular-big": gen.Random(3, 60, 50, 500),
	}
	for n, f := range out {
		out[n] = up(f)
	}
	// Some of a real one's troubles.
	for _, n := range []string{"ft2-108", "ft3-972", "ft3-5184", "torus8x8"} {
		f := out[n]
		bad := 0
		for i := range f.Ports {
			if f.Ports[i].Peer == fabric.None || i%71 != 3 {
				continue
			}
			switch bad++; bad % 3 {
			case 0:
				set(&f.Ports[i], ib.PortDown, 2)
			case 1:
				set(&f.Ports[i], ib.PortInit, 2)
			default:
				set(&f.Ports[i], ib.PortActive, 1)
			}
		}
	}
	return out
}

// set makes a port of the width bit and state, with lanes of 25 Gb/s.
func set(p *fabric.Port, st ib.PortState, width byte) {
	p.Known = true
	p.Info.SetWidths(3, 3, width)
	p.Info.SetSpeeds(7, 7, 4)
	p.Info.SetSpeedsExt(3, 3, 2)
	p.Info.SetState(st)
	p.Info.SetPhysState(ib.PhysLinkUp)
}

// up is the fabric with all links Active at 100 Gb/s.
func up(f *fabric.Fabric) *fabric.Fabric {
	f = f.Clone()
	for i := range f.Ports {
		if f.Ports[i].Peer != fabric.None {
			set(&f.Ports[i], ib.PortActive, 2)
		}
	}
	return f
}

func overlap(a, b box) bool {
	return a.x+a.w > b.x+0.5 && b.x+b.w > a.x+0.5 && a.y+a.h > b.y+0.5 && b.y+b.h > a.y+0.5
}

// The pictures are well-formed, scale, fit a screen's shape, and no box hides
// another.
func TestShapes(t *testing.T) {
	for name, f := range shapes() {
		d := draw(f)
		if ratio := d.w / d.h; ratio > 6 || ratio < 0.2 || d.w > 4200 || d.h > 4200 {
			t.Errorf("%s: %.0f by %.0f is no picture for a screen", name, d.w, d.h)
		}
		for i, a := range d.boxes {
			if a.x < 0 || a.y < 0 || a.x+a.w > d.w || a.y+a.h > d.h {
				t.Errorf("%s: %q is outside", name, a.text)
			}
			for _, b := range d.boxes[i+1:] {
				if overlap(a, b) {
					t.Fatalf("%s: %q (%s) and %q (%s) overlap", name, a.text, a.title, b.text, b.title)
				}
			}
		}
		switches := 0
		for _, b := range d.boxes {
			if (b.class == "switch" || b.class == "core") && b.title != "" {
				switches += max(b.of, 1)
			}
		}
		if switches != len(f.Switches) {
			t.Errorf("%s: %d of %d switches are drawn", name, switches, len(f.Switches))
		}
		// At the width of a screen every text has at least seven of its pixels.
		if high := 9.5 * 1600 / d.w; high < 7 && name != "ft2-648" {
			t.Errorf("%s: at 1600 columns a text of 9.5 is %.1f high", name, high)
		}
		wide := func(l label) float64 { return (textWidth(l.text) - 12) * max(l.size, 9.5) / fontSize }
		for i, a := range d.labels {
			for _, b := range d.labels[i+1:] {
				if a.anchor == "" && b.anchor == "" && math.Abs(a.y-b.y) < 8 && a.x < b.x+wide(b) && b.x < a.x+wide(a) {
					t.Errorf("%s: %q and %q overlap", name, a.text, b.text)
				}
			}
		}
		for i, a := range d.lines {
			for _, b := range d.lines[i+1:] {
				if a.label != "" && b.label != "" && math.Abs(a.at.x-b.at.x) < 20 && math.Abs(a.at.y-b.at.y) < 9 {
					t.Errorf("%s: the labels %q and %q are in one place", name, a.label, b.label)
				}
			}
		}
		var b bytes.Buffer
		testkit.NoError(t, WriteSVG(&b, f))
		wellFormed(t, name, b.Bytes())
		if !strings.Contains(b.String(), "viewBox=") || b.Len() > 4<<20 {
			t.Errorf("%s: %d bytes", name, b.Len())
		}
	}
}

func wellFormed(t *testing.T, name string, text []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// The same fabric gives the same picture.
func TestSame(t *testing.T) {
	for _, f := range []*fabric.Fabric{gen.Random(7, 14, 12, 60), gen.FatTree3(8, 4, 4), gen.Mesh([]int{3, 3}, 1)} {
		var a, b bytes.Buffer
		if WriteSVG(&a, f) != nil || WriteSVG(&b, f) != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Error("two pictures of one fabric differ")
		}
	}
}

// A torus of rings of four, which is a hypercube, too, is drawn as a torus.
func TestRingsOfFour(t *testing.T) {
	for _, f := range []*fabric.Fabric{gen.Torus([]int{4, 4}, 1), gen.Torus([]int{4, 4, 4}, 1), gen.Torus([]int{2, 2, 2, 2}, 1)} {
		d := draw(f)
		if len(d.labels) == 0 || !strings.HasPrefix(d.labels[0].text, "torus 4x4") {
			t.Errorf("%d switches: %+v", len(f.Switches), d.labels)
		}
	}
}

// Whatever a fabric is, the picture is well-formed, within bounds, and has the
// contents of names as text only.
func FuzzPicture(f *testing.F) {
	f.Add([]byte("vendid=0x2c9\ndevid=0x1\nsysimgguid=0x1\nswitchguid=0x1(1)\nSwitch 4 \"S-1\" # \"a<b\"\n[1] \"H-2\"[1] # \"x\" lid " +
		"1 4xQDR\n"))
	for _, x := range []*fabric.Fabric{gen.Pair(), gen.FatTree2(4, 2), gen.FatTree3(4, 2, 2), gen.Mesh([]int{3, 2}, 1),
		gen.Random(1, 5, 5, 5)} {
		f.Add([]byte(gen.Text(x)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := fabric.ReadText("f", bytes.NewReader(text))
		if err != nil || x == nil || len(x.Nodes) > 500 {
			return
		}
		var b bytes.Buffer
		testkit.NoError(t, WriteSVG(&b, x))
		wellFormed(t, "fuzz", b.Bytes())
		if b.Len() > 20000+4000*(len(x.Nodes)+x.Links()) {
			t.Errorf("%d bytes for %d nodes", b.Len(), len(x.Nodes))
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf\"") {
			t.Error("a place that is not a number")
		}
		b.Reset()
		testkit.NoError(t, WriteDOT(&b, x))
	})
}

var out = flag.String("pictures", "", "write the pictures of all shapes into this directory, to be looked at")

func TestPictures(t *testing.T) {
	if *out == "" {
		t.Skip("give -pictures DIRECTORY")
	}
	for name, f := range shapes() {
		w, err := os.Create(filepath.Join(*out, name+".svg"))
		testkit.NoError(t, err)
		testkit.NoError(t, WriteSVG(w, f))
		testkit.NoError(t, w.Close())
	}
}
