package units

import (
	"strings"
	"testing"
)

// TestMessages checks the form of messages: what is wrong, what is kept, what to do;
// lower case, names in double quotes or with their "=" or brackets.
func TestMessages(t *testing.T) {
	for text, want := range map[string]string{
		"[Link]\nMTU=2044":   `[Link] unknown key "MTU"; the assignment is ignored; did you mean MTUBytes=?`,
		"[IPOIB]\nMode=auto": `unknown section [IPOIB]; the section is ignored; did you mean [IPoIB]?`,
		"[SubnetManager]\nManage=yes": `[SubnetManager] Manage=: "yes" is not one of auto, always, ` +
			`no; Manage= stays unset; did you mean auto?`,
		"[SubnetManager]\nManage=On":      `did you mean auto?`,
		"[SubnetManager]\nManage=false":   `[SubnetManager] Manage=: "false" is not one of auto, always, no; Manage= stays unset`,
		"[SubnetManager]\nEngine=ibnetsm": `did you mean builtin?`,
		"[Port]\nType=ethernet":           `did you mean eth?`,
		"[Port]\nType=InfiniBand":         `did you mean ib?`,
		"[IPoIB]\nMode=cm":                `did you mean connected?`,
		"[Network]\nAddress=\"10.0.0.1/24\"": `[Network] Address=: "10.0.0.1/24" is in quotes, which are ` +
			`part of the value here; the assignment is ignored; ` +
			`write it without quotes`,
		"[Address]\nAddress='10.0.0.1/24'": `Address=: '10.0.0.1/24' is in quotes`,
		"[Network]\nGateway=\"10.0.0.1\"":  `write it without quotes`,
		"[Network]\nDNS=\"10.0.0.1\"":      `write it without quotes`,
		"[Link]\nMTUBytes=\"max\"":         `write it without quotes`,
		"[Link]\nMTUBytes=\"big\"":         `[Link] MTUBytes=: "\"big\"" is not a size: no number at "\"big\""; MTUBytes= stays unset`,
		"[Network]\nAddress=10.0.0.1":      `"10.0.0.1" has no prefix length; it is read as 10.0.0.1/32`,
		"[Link]\nMTUBytes=2044 # note":     `write a comment on a line of its own`,
		"[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=65520": `MTUBytes=65520 is impossible in datagram mode, which ` +
			`allows at most 4092; write Mode=connected, or ` +
			`MTUBytes=max; the link gets at most 4092`,
		"[Bond]\nMode=active-backup": `[Bond]: a section of .netdev files: leave bonds to systemd-networkd (for IPoIB only mode active-backup ` +
			`works); the section is ignored`,
		"[Network]\nMACVLAN=mv0": `[Network] MACVLAN=: a key of systemd-networkd: the kernel refuses it on IPoIB, where [Partition] makes ` +
			`a further interface; for a RoCE link write a .netdev file`,
		"[Link]\nNamePolicy=keep": `[Link] NamePolicy=: a key of .link files: write it in one, which systemd-udevd applies when the link ` +
			`appears; the assignment is ignored`,
		"[Link]\nLACPTransmitRate=fast": `[Link] unknown key "LACPTransmitRate", which belongs to ` +
			`[Bond] of .netdev files; the assignment is ignored`,
		"[Link]\nPFC=3": `[Link] unknown key "PFC", which belongs to [RoCE]; the assignment is ignored`,
	} {
		_, problems := VerifyFile("a.ibnetwork", []byte("[Match]\nName=ib0\n"+text+"\n"))
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%q:\n%v\nnot\n%s", text, problems, want)
		}
	}
	for _, text := range corpusTexts(t) {
		_, problems := VerifyFile("a.ibnetwork", []byte(text))
		for _, p := range problems {
			s := p.String()
			if strings.Contains(s, "?;") || strings.Contains(s, ";;") || strings.Contains(s, " is taken") ||
				strings.HasSuffix(s, ".") || strings.HasSuffix(s, " ") || strings.Contains(s, "put right") ||
				strings.Contains(s, "%!") {
				t.Errorf("%s", s)
			}
		}
	}
}
