package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// job is what the host gives the guest.  It lies as job.json in the folder that
// both share, which the guest mounts on /lab:
//
//	job.json   this
//	bin/       programs, first in PATH; bin/lab-agent is the test binary
//	swib.ko    the fabric module
//	files/     the tree of Config.Files
//	out/       what the guest leaves: stdout, exit, boot, dmesg, and artifacts
type job struct {
	Config
	Root   string    // folder of the Debian userland on the host
	Args   []string  // arguments of the test binary
	Shell  bool      // give a prompt instead of running Args
	Begun  time.Time // when a Shell was asked for and all was built, by the host's clock
	Wires  []string  // ports whose cables leave the kernel, in the order of vec0, vec1 ...
	Net    string    // folder of the host that is mounted on netDir, "" for none
	Export string    // how the guest reaches host folders: "hostfs" or "9p"
}

// readJob reads the job of this guest.
func readJob() (*job, error) {
	j := &job{}
	text, err := os.ReadFile(shareDir + "/job.json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("job.json: %w", err)
	}
	return j, nil
}

const shareDir = "/lab"
