package units

import "testing"

// A link has two words for its driver, and a port without an interface the first
// only: the other one may still come.
func TestDriverHasTwoWords(t *testing.T) {
	ipoib := Facts{Driver: Know("mlx5_core"), NetDriver: Know("ib_ipoib")}
	enhanced := Facts{Driver: Know("mlx5_core"), NetDriver: Know("mlx5_core[ib_ipoib]")}
	bare := Facts{Driver: Know("mlx4_core"), NetDriver: Know("")} // no udevd
	port := Facts{Driver: Know("mlx4_core")}
	for _, tt := range []struct {
		keys string
		f    Facts
		want Verdict
	}{
		{"Driver=mlx5_core", ipoib, Yes},
		{"Driver=ib_ipoib", ipoib, Yes},
		{"Driver=mlx4_core mlx5_core", enhanced, Yes},
		{"Driver=mlx5_core[ib_ipoib]", enhanced, Yes},
		{"Driver=mlx5_core[ib_ipoib]", ipoib, No},
		{"Driver=mlx5_cor[de]", ipoib, Yes}, // still a set of characters
		{"Driver=mlx4_core", ipoib, No},
		{"Driver=!ib_ipoib", ipoib, No},
		{"Driver=!mlx5_core", ipoib, No},
		{"Driver=!mlx5_core[ib_ipoib]", enhanced, No},
		{"Driver=!mlx4_core", ipoib, Yes},
		{"Driver=mlx5_core\nDriver=!ib_ipoib", ipoib, No},
		{"Driver=mlx4_core", bare, Yes},
		{"Driver=ib_ipoib", bare, No},
		{"Driver=!ib_ipoib", bare, Yes},
		{"Driver=mlx4_core", port, Yes},
		{"Driver=mlx4_en", port, NotYet},
		{"Driver=!mlx4_core", port, No},
		{"Driver=!mlx4_en", port, NotYet},
		{"Driver=mlx4_core\nDriver=!mlx4_en", port, NotYet},
	} {
		u, ds := VerifyFile("x.ibnetwork", []byte("[Match]\n"+tt.keys+"\n"))
		if len(ds) > 0 {
			t.Fatal(ds)
		}
		if v, why := u.Match.Matches(&tt.f); v != tt.want {
			t.Errorf("%q: %v (%s), want %v", tt.keys, v, why, tt.want)
		}
	}
}
