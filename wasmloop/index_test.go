package wasmloop

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAnIndexIsSignedAsAWhole(t *testing.T) {
	t.Parallel()
	idx := Index{Entries: []RegistryEntry{
		{Name: "b", Kind: KindWorkflow, Version: "1", Artifact: "b.oloop", SHA256: digest([]byte("b")), Requires: []string{"calendar.add"}},
		{Name: "a", Kind: KindRecipe, Version: "1", Description: "<a>", Artifact: "a.yaml", SHA256: digest([]byte("a"))},
	}}
	if err := SignIndex(&idx, time.Unix(1_780_000_000, 0), key("reviewer")); err != nil {
		t.Fatal(err)
	}
	raw, err := json.MarshalIndent(idx, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) (string, error) {
		var got Index
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		return got.Signer()
	}
	if got, err := read(string(raw)); err != nil || got != public("reviewer") {
		t.Fatal(got, err)
	}
	for _, change := range [][2]string{
		{`"version": "1"`, `"version": "2"`},
		{"b.oloop", "c.oloop"},
		{digest([]byte("a")), digest([]byte("x"))},
		{`"calendar.add"`, `"shell.exec"`},
		{`"registry_key": "` + public("reviewer"), `"registry_key": "` + public("other")},
		{`"at": 1780000000`, `"at": 1790000000`},
		{`"key": "` + public("reviewer"), `"key": "` + public("other")},
		{"\\u003ca\\u003e", "is safe"},
	} {
		text := strings.Replace(string(raw), change[0], change[1], 1)
		if text == string(raw) {
			t.Fatalf("%s is not there", change[0])
		}
		if got, err := read(text); !errors.Is(err, ErrAltered) {
			t.Errorf("%s → %s: %q %v", change[0], change[1], got, err)
		}
	}
	bad := Index{Entries: []RegistryEntry{{Name: "a", Artifact: "a"}}}
	if err := SignIndex(&bad, time.Now(), key("reviewer")); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	twice := Index{Entries: []RegistryEntry{idx.Entries[0], idx.Entries[0]}}
	if err := SignIndex(&twice, time.Now(), key("reviewer")); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestTheIndexOfKARMAXHasNoSigner(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/karmax/index.json")
	if err != nil {
		t.Fatal(err)
	}
	var idx Index
	if err := json.Unmarshal(text, &idx); err != nil {
		t.Fatal(err)
	}
	if got, err := idx.Signer(); got != "" || err != nil {
		t.Error(got, err)
	}
}
