package card

import (
	"path/filepath"

	"ibnetworkd/internal/smallfile"
	"ibnetworkd/roce"
)

const maxModprobe = 64 << 10

func (o *Observer) modprobe() string {
	b, err := smallfile.Read(filepath.Join(o.root, roce.ModprobeFile), maxModprobe)
	if err != nil {
		return ""
	}
	return string(b)
}
