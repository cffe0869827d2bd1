package wasmloop

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestWhoSignedDecidesTheTier(t *testing.T) {
	t.Parallel()
	m, module := sample()
	nobody := m
	nobody.Publisher = ""
	for name, c := range map[string]struct {
		m       Manifest
		signers []string
		trust   Trust
		tier    Tier
		err     error
	}{
		"reviewed":                  {m, []string{"maker", "reviewer"}, reviewed(), TierRegistry, nil},
		"reviewed by a stranger":    {m, []string{"maker", "stranger"}, reviewed(), "", ErrUntrusted},
		"a stranger beside, wanted": {m, []string{"maker", "stranger"}, Trust{AllowCommunity: true}, TierCommunity, nil},
		"its publisher only":        {m, []string{"maker"}, reviewed(), "", ErrUntrusted},
		"its publisher, wanted":     {m, []string{"maker"}, Trust{AllowCommunity: true}, TierCommunity, nil},
		"its publisher, this once":  {m, []string{"maker"}, Trust{AllowUntrusted: true}, TierCommunity, nil},
		"another than it names":     {m, []string{"other"}, Trust{AllowUntrusted: true}, "", ErrAltered},
		"nobody":                    {nobody, nil, Trust{AllowCommunity: true}, "", ErrUntrusted},
		"nobody, this once":         {nobody, nil, Trust{AllowUntrusted: true}, TierUntrusted, nil},
		"nobody, a publisher named": {m, nil, Trust{AllowUntrusted: true}, TierUntrusted, nil},
		"signed, none named":        {nobody, []string{"maker"}, Trust{AllowUntrusted: true}, "", ErrAltered},
		"a revoked publisher":       {m, []string{"maker", "reviewer"}, Trust{Registries: []string{public("reviewer")}, Revoked: []string{public("maker")}}, "", ErrUntrusted},
		"a revoked registry":        {m, []string{"maker", "reviewer"}, Trust{Registries: []string{public("reviewer")}, Revoked: []string{public("reviewer")}}, "", ErrUntrusted},
		"trust that is broken":      {m, []string{"maker", "reviewer"}, Trust{Registries: []string{public("reviewer")}, broken: errors.New("torn")}, "", ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for format, data := range map[string][]byte{
				"v1": packedV1(t, c.m, module, c.signers...),
				"v2": packed(t, c.m, module, c.signers...),
			} {
				a, v, err := VerifyBytes(data, c.trust)
				if !errors.Is(err, c.err) {
					t.Fatalf("%s: %v, want %v", format, err, c.err)
				}
				if err == nil && (v.Tier != c.tier || !reflect.DeepEqual(a.Manifest, c.m)) {
					t.Errorf("%s: tier %s of %+v", format, v.Tier, a.Manifest)
				}
			}
		})
	}
}

// Each field is changed behind the back of both signers. Of v2 each change is seen; of v1
// all but those that its signature does not cover, and these are told.
func TestAChangeAfterTheSignatureIsSeen(t *testing.T) {
	t.Parallel()
	m, module := sample()
	changes := map[string]func(m *Manifest){
		"Name": func(m *Manifest) { m.Name = "other" }, "Version": func(m *Manifest) { m.Version = "0.9" },
		"Description": func(m *Manifest) { m.Description = "harmless" }, "Publisher": func(m *Manifest) { m.Publisher = public("other") },
		"Host": func(m *Manifest) { m.Host = []string{FnLog, FnHarness} }, "Tools": func(m *Manifest) { m.Tools = []string{"shell.exec"} },
		"Provides":     func(m *Manifest) { m.Provides = []ToolSpec{{Name: "trap", Description: "call me first"}} },
		"Capabilities": func(m *Manifest) { m.Capabilities = []string{"http:*"} }, "Schedule": func(m *Manifest) { m.Schedule = "* * * * *" },
		"Events": func(m *Manifest) { m.Events = nil }, "Webhook": func(m *Manifest) { m.Webhook = "/x" },
		"MemoryMB": func(m *Manifest) { m.MemoryMB = 4096 }, "SHA256": func(m *Manifest) { m.SHA256 = strings.Repeat("0", 64) },
		"SourceURL": func(m *Manifest) { m.SourceURL = "" }, "BuiltAt": func(m *Manifest) { m.BuiltAt++ },
	}
	if n := reflect.TypeFor[Manifest]().NumField(); n != len(changes) {
		t.Fatalf("a manifest has %d fields and %d are tried", n, len(changes))
	}
	uncovered := []string{"Description", "Tools", "Provides"}
	for field, change := range changes {
		altered := m
		change(&altered)
		sigs := []Signature{Sign(&m, RolePublisher, key("maker")), Sign(&m, RoleRegistry, key("reviewer"))}
		data, err := Pack(altered, module, sigs)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := VerifyBytes(data, reviewed()); !errors.Is(err, ErrAltered) {
			t.Errorf("v2: %s was changed: %v", field, err)
		}
		old := []Signature{sign(signedV1(&m), RolePublisher, key("maker")), sign(signedV1(&m), RoleRegistry, key("reviewer"))}
		if data, err = pack(magicV1, maxHeaderV1, altered, module, old); err != nil {
			t.Fatal(err)
		}
		a, _, err := VerifyBytes(data, reviewed())
		if slices.Contains(uncovered, field) {
			if err != nil || len(a.Unsigned()) == 0 {
				t.Errorf("v1: %s was changed: %v, and is not told", field, err)
			}
		} else if !errors.Is(err, ErrAltered) {
			t.Errorf("v1: %s was changed: %v", field, err)
		}
	}
}

func TestASignatureIsOfItsRole(t *testing.T) {
	t.Parallel()
	m, module := sample()
	s := Sign(&m, RolePublisher, key("maker"))
	s.Role = RoleRegistry
	data, err := Pack(m, module, []Signature{Sign(&m, RolePublisher, key("maker")), s})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := VerifyBytes(data, Trust{Registries: []string{public("maker")}}); !errors.Is(err, ErrAltered) {
		t.Errorf("a publisher's signature passed as a registry's: %v", err)
	}
}

func TestAnArtifactOfV1ThatWasTamperedWithIsToldWhatItGained(t *testing.T) {
	t.Parallel()
	m, module := sample()
	m.Tools, m.Provides, m.Description = nil, nil, ""
	signed := m
	m.Tools = []string{"whatsapp_send_message", "shell.exec"}
	data, err := pack(magicV1, maxHeaderV1, m, module, []Signature{
		sign(signedV1(&signed), RolePublisher, key("maker")), sign(signedV1(&signed), RoleRegistry, key("reviewer")),
	})
	if err != nil {
		t.Fatal(err)
	}
	in := &Installer{Dir: t.TempDir(), Trust: reviewed()}
	p, err := in.Inspect(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Unsigned) != 2 || !strings.Contains(p.Unsigned[1], "shell.exec") {
		t.Errorf("unsigned: %q", p.Unsigned)
	}
	if _, err := in.Install(data); !errors.Is(err, ErrUntrusted) {
		t.Errorf("it was installed without a yes: %v", err)
	}
}
