package wasmloop

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The manifests and the index are those of the public registry karmax-loops.
func TestTheManifestsOfThePublicLoopsAreRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/karmax/*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ParseManifest(data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if m.Name+".yaml" != filepath.Base(file) || len(m.Host) == 0 || len(UnknownHostFunctions(m.Host)) > 0 || len(Describe(m)) < 5 {
			t.Errorf("%s: %+v", file, m)
		}
	}
}

func TestAManifestWithAnUnknownKeyIsRefused(t *testing.T) {
	t.Parallel()
	_, err := ParseManifest([]byte("name: a\nversion: \"1\"\nhots: [log]\n"))
	if err == nil || !strings.Contains(err.Error(), "hots") || !strings.Contains(err.Error(), "[3:1]") {
		t.Error(err)
	}
	m, err := ParseManifest([]byte("name: a\nversion: \"1\"\nprovides:\n  - name: look\n    description: d\n    parameters:\n      type: object\n"))
	if err != nil || string(m.Provides[0].Parameters) != `{"type":"object"}` {
		t.Errorf("%+v %v", m, err)
	}
}

func TestTrustIsStoredWithoutWhatTheEnvironmentAdds(t *testing.T) {
	dir := t.TempDir()
	if got := LoadTrust(dir); len(got.Registries) > 0 || got.AllowCommunity || got.Err() != nil {
		t.Errorf("of nothing: %+v", got)
	}
	if err := SaveTrust(dir, []string{public("b"), public("a"), public("a")}, []string{public("evil")}, false); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KARMAX_LOOP_REGISTRIES", public("c")+", "+public("d"))
	t.Setenv("OMBUD_LOOP_REVOKED", public("e"))
	t.Setenv("OMBUD_LOOP_ALLOW_COMMUNITY", "true")
	got := LoadTrust(dir)
	if len(got.Registries) != 4 || len(got.Revoked) != 2 || !got.AllowCommunity {
		t.Errorf("%+v", got)
	}
	registries, revoked, community := StoredTrust(dir)
	if len(registries) != 2 || !slices.IsSorted(registries) || len(revoked) != 1 || community {
		t.Errorf("%q %q %v", registries, revoked, community)
	}
	if err := SaveTrust(dir, []string{"no key"}, nil, false); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

// A torn file may have named revoked keys, so with it nothing is let in, and no edit
// writes over it.
func TestTrustThatCannotBeReadTrustsNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(TrustPath(dir), []byte(`{"revoked":["`), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := LoadTrust(dir)
	trust.AllowUntrusted = true
	m, module := sample()
	if _, _, err := VerifyBytes(packed(t, m, module, "maker"), trust); !errors.Is(err, ErrUntrusted) || trust.Err() == nil {
		t.Errorf("%v; %v", err, trust.Err())
	}
	if err := SaveTrust(dir, nil, nil, true); !errors.Is(err, ErrMalformed) {
		t.Errorf("it was written over: %v", err)
	}
}

func TestALockfileIsReadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := LoadLock(dir)
	if err != nil || len(l.Entries) != 0 {
		t.Fatalf("%+v %v", l, err)
	}
	l.Put(Entry{Name: "b", Version: "1"})
	l.Put(Entry{Name: "a", Version: "1"})
	l.Put(Entry{Name: "b", Version: "2"})
	if err := l.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := LoadLock(dir)
	if err != nil || !reflect.DeepEqual(again, l) || again.Entries[0].Name != "a" || again.Entries[1].Version != "2" {
		t.Errorf("%+v %v", again, err)
	}
	if !again.Remove("a") || again.Remove("a") {
		t.Error("removed twice")
	}
	for _, text := range []string{"{", `{"version":2,"loops":[]}`} {
		if err := os.WriteFile(LockPath(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadLock(dir); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestARegistryIsReadAndItsFilesAreChecked(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("testdata/karmax/index.json")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /r/index.json", func(w http.ResponseWriter, _ *http.Request) { w.Write(index) })          //nolint:errcheck // a test
	mux.HandleFunc("GET /r/x/a.oloop", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("bytes")) }) //nolint:errcheck // a test
	server := httptest.NewServer(mux)
	defer server.Close()
	c := &Client{BaseURL: server.URL + "/r/"}
	idx, err := c.Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, there := idx.Find("wa-monitor")
	if !there || e.Kind != KindWorkflow || idx.RegistryKey == "" {
		t.Errorf("%+v", e)
	}
	if got := idx.ShipWith(); len(got) != 5 || got[0].Name != "wa-monitor" {
		t.Errorf("ships with %+v", got)
	}
	e = RegistryEntry{Name: "a", Artifact: "x/a.oloop", SHA256: digest([]byte("bytes"))}
	if data, err := c.Fetch(t.Context(), e); err != nil || string(data) != "bytes" {
		t.Errorf("%q %v", data, err)
	}
	for name, c2 := range map[string]struct {
		change func(*RegistryEntry)
		err    error
	}{
		"another digest": {func(e *RegistryEntry) { e.SHA256 = digest([]byte("other")) }, ErrAltered},
		"no digest":      {func(e *RegistryEntry) { e.SHA256 = "" }, ErrUntrusted},
		"no place":       {func(e *RegistryEntry) { e.Artifact = "" }, ErrMalformed},
		"another scheme": {func(e *RegistryEntry) { e.Artifact = "file:///etc/passwd" }, ErrUntrusted},
	} {
		x := e
		c2.change(&x)
		if _, err := c.Fetch(t.Context(), x); !errors.Is(err, c2.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e.Artifact = "x/none"
	if _, err := c.Fetch(t.Context(), e); err == nil || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
}
