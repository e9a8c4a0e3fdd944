package elect_test

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/mad"
)

func TestTrusts(t *testing.T) {
	const secret = 0x5ec2e7
	for _, tt := range []struct {
		own, theirs uint64
		problem     string
	}{
		{0, 0, ""}, {0, 1, ""}, {0, secret, ""},
		{1, 0, ""}, {1, 1, ""}, {1, secret, "has another SM_Key"},
		{secret, secret, ""}, {secret, 0, "shows no SM_Key"}, {secret, 1, "has another SM_Key"}, {secret, 7, "has another SM_Key"},
	} {
		k := elect.Trust{Key: tt.own}
		i := mad.SMInfo{SMKey: tt.theirs}
		if got := k.Problem(i); got != tt.problem || k.Trusts(i) != (got == "") {
			t.Errorf("key %#x, theirs %#x: %q, want %q", tt.own, tt.theirs, got, tt.problem)
		}
		want := elect.Show
		if tt.own == secret && tt.problem != "" {
			want = elect.Hide
		}
		if got := k.Ordered(i); got != want {
			t.Errorf("key %#x, an order with %#x: %v, want %v", tt.own, tt.theirs, got, want)
		}
	}
}

func TestShown(t *testing.T) {
	const secret, mkey = 0x5ec2e7, 0x77
	for _, tt := range []struct {
		name    string
		trust   elect.Trust
		mkey    ib.MKey
		payload bool
		want    elect.Answer
	}{
		{"no key", elect.Trust{}, 0, false, elect.Show},
		{"the default key", elect.Trust{Key: 1, MKey: mkey}, 0, true, elect.Show},
		{"a stranger", elect.Trust{Key: secret}, 0, false, elect.AskBack},
		{"a stranger that claims something", elect.Trust{Key: secret}, 0, true, elect.Hide},
		{"a stranger with an M_Key where there is none", elect.Trust{Key: secret}, mkey, true, elect.Hide},
		{"the M_Key", elect.Trust{Key: secret, MKey: mkey}, mkey, false, elect.Show},
		{"another M_Key", elect.Trust{Key: secret, MKey: mkey}, 5, false, elect.Hide},
		{"no M_Key where there is one", elect.Trust{Key: secret, MKey: mkey}, 0, false, elect.Hide},
	} {
		if got := tt.trust.First(elect.Caller{MKey: tt.mkey}, tt.payload); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	master := mad.SMInfo{GUID: 5, State: mad.SMMaster, Priority: 15}
	for _, tt := range []struct {
		name string
		c    elect.Caller
		want elect.Answer
	}{
		{"no answer", elect.Caller{}, elect.Hide},
		{"no manager", elect.Caller{Port: 9, Known: true}, elect.Hide},
		{"the same key", elect.Caller{Port: 4, Info: mad.SMInfo{GUID: 4, SMKey: secret}}, elect.Show},
		{"another key", elect.Caller{Port: 4, Info: mad.SMInfo{GUID: 4, SMKey: 1}}, elect.Hide},
		{"the GUID of a manager elsewhere", elect.Caller{Port: 4, Proven: true, Info: mad.SMInfo{GUID: 9, SMKey: secret}}, elect.Hide},
		{"a manager that showed the key before", elect.Caller{Port: 9, Known: true, Info: mad.SMInfo{GUID: 9}}, elect.Show},
		{"a proof", elect.Caller{Port: 5, Proven: true, Info: master}, elect.Show},
		{"a master by word", elect.Caller{Port: 5, Info: master}, elect.Hide},
	} {
		if got := (elect.Trust{Key: secret}).Asked(tt.c); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A proof is of one key, one question and two ports.
func TestProof(t *testing.T) {
	k := elect.Trust{Key: 0x5ec2e7}
	nonce := [16]byte{1, 2, 3}
	p := k.Proof(nonce, 5, 9)
	if !k.Proves(p, nonce, 5, 9) {
		t.Error("a proof is refused")
	}
	other := elect.Trust{Key: 0x5ec2e8}
	if k.Proves(p, [16]byte{1, 2, 4}, 5, 9) || k.Proves(p, nonce, 5, 8) || k.Proves(p, nonce, 9, 5) || other.Proves(p, nonce, 5, 9) ||
		k.Proves([16]byte{}, nonce, 5, 9) {
		t.Error("another one's proof is accepted")
	}
}
