package lab

// job is what the host tells the guest.  It lies as job.json in the folder that
// both share, which the guest mounts on /lab:
//
//	job.json   this
//	bin/       programs, first in PATH; bin/lab-agent is the test binary
//	swib.ko    the fabric module
//	files/     the tree of Config.Files
//	out/       what the guest leaves: stdout, exit, boot, dmesg, and artifacts
type job struct {
	Config
	Root   string   // folder of the Debian userland on the host
	Args   []string // arguments of the test binary
	Shell  bool     // give a prompt instead of running Args
	Export string   // how the guest reaches host folders: "hostfs" or "9p"
}

const shareDir = "/lab"
