package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/internal/wire"
	"github.com/ombud-run/ombud/wasmloop"
)

// handOver has an artifact inspected.
func handOver(t *testing.T, c *wire.Client, data []byte) wire.LoopPreview {
	t.Helper()
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	got, err := c.LoopUpload(t.Context(), wire.LoopUploadRequest{SHA256: sha, Size: len(data), Data: data})
	if err != nil || got.Have != len(data) {
		t.Fatal(got, err)
	}
	p, err := c.LoopInspect(t.Context(), wire.LoopInspectRequest{SHA256: sha})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func installLoop(t *testing.T, c *wire.Client, data []byte) {
	t.Helper()
	p := handOver(t, c, data)
	_, err := c.LoopInstall(t.Context(), wire.LoopInstallRequest{SHA256: p.SHA256, Name: p.Manifest.Name, Unsigned: p.Unsigned})
	if err != nil {
		t.Fatal(err)
	}
}

// ranWell runs a loop to a good end and returns the run.
func ranWell(t *testing.T, c *wire.Client, name string) (out wire.Run) {
	t.Helper()
	ran, err := c.LoopRun(t.Context(), wire.LoopRunRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the run", func() bool {
		res, err := c.RunsGet(t.Context(), wire.RunsGetRequest{ID: ran.RunID})
		if err != nil || res.Run.State == "failed" {
			t.Fatal(res.Run, err)
		}
		out = res.Run
		return res.Run.State == "completed"
	})
	return out
}

func loopOf(t *testing.T, name, version string, change func(*wasmloop.Manifest)) []byte {
	t.Helper()
	m := wasmloop.Manifest{Name: name, Version: version, Host: []string{wasmloop.FnNotify}, Capabilities: []string{"tool:app.push"}}
	if change != nil {
		change(&m)
	}
	return signedtest.V2(t, m, signedtest.Module(version), "maker", "")
}

// A signed loop is installed, runs, is upgraded, disabled and removed, all of it without a
// restart, and what it may do is seen and follows each of these.
func TestASignedLoopLives(t *testing.T) {
	t.Parallel()
	eachStore(t, "", func(t *testing.T, c *wire.Client, _ Options) {
		p := handOver(t, c, loopOf(t, "hello", "1.0.0", func(m *wasmloop.Manifest) { m.Tools = []string{"fs.read", "crm.read"} }))
		if p.TypeName == "" || p.Limits.MemoryMB != 64 || p.Limits.TimeS != 720 || p.Limits.Calls == 0 || !slices.Equal(p.Missing, []string{"crm.read"}) {
			t.Errorf("%+v", p)
		}
		if _, err := c.LoopInstall(t.Context(), wire.LoopInstallRequest{SHA256: p.SHA256}); !fault.Is(err, fault.Denied) {
			t.Error("without its name:", err)
		}
		installLoop(t, c, loopOf(t, "hello", "1.0.0", nil))
		if _, err := c.LoopInstall(t.Context(), wire.LoopInstallRequest{SHA256: strings.Repeat("0", 64), Name: "hello"}); !fault.Is(err, fault.NotFound) {
			t.Error("what was not inspected:", err)
		}
		if r := ranWell(t, c, "hello"); r.Kind != "signed" || !strings.Contains(r.Definition, "loop:hello@sha256:") {
			t.Errorf("%+v", r)
		}
		why := func(want string) {
			t.Helper()
			got, err := c.CapsWhy(t.Context(), wire.CapsWhyRequest{Subject: "loop:hello", Scope: "notify.send:operator"})
			if err != nil || got.Decision != want {
				t.Errorf("caps why: %+v %v", got, err)
			}
		}
		why("allow")
		caps, err := c.CapsList(t.Context(), wire.CapsListRequest{Subject: "loop:hello"})
		if err != nil || len(caps.Subjects) != 1 || !slices.ContainsFunc(caps.Subjects[0].Rules, func(r wire.CapsRule) bool { return r.Scope == "notify.send:operator" && r.Effect == "allow" }) {
			t.Errorf("%+v %v", caps, err)
		}
		denied, err := c.CapsGrant(t.Context(), wire.CapsGrantRequest{Subject: "loop:hello", Scope: "notify.send", Effect: "deny"})
		if err != nil {
			t.Fatal(err)
		}
		why("deny") // what was approved can be narrowed
		if _, err := c.CapsRevoke(t.Context(), wire.CapsRevokeRequest{ID: denied.Grant.ID}); err != nil {
			t.Fatal(err)
		}
		why("allow")
		installLoop(t, c, loopOf(t, "hello", "2.0.0", func(m *wasmloop.Manifest) { m.Host, m.Capabilities = []string{wasmloop.FnLog}, nil }))
		why("deny") // what the new one does not name is gone
		list, err := c.LoopList(t.Context(), wire.LoopListRequest{Name: "loop:hello"})
		if err != nil || list.Loops[0].Signed == nil || list.Loops[0].Signed.Manifest.Version != "2.0.0" || list.Loops[0].Kind != "signed" || list.Loops[0].State != "ok" {
			t.Errorf("%+v %v", list, err)
		}
		off, err := c.LoopDisable(t.Context(), wire.LoopRequest{Name: "hello"})
		if err != nil || off.Loop.State != "disabled" {
			t.Error(off, err)
		}
		if _, err := c.LoopRun(t.Context(), wire.LoopRunRequest{Name: "hello"}); !fault.Is(err, fault.Conflict) {
			t.Error("while it is disabled:", err)
		}
		if on, err := c.LoopEnable(t.Context(), wire.LoopRequest{Name: "hello"}); err != nil || on.Loop.State != "ok" {
			t.Error(on, err)
		}
		if v, err := c.LoopVerify(t.Context(), wire.LoopVerifyRequest{}); err != nil || len(v.Loops) != 1 || v.Loops[0].Problem != nil {
			t.Errorf("%+v %v", v, err)
		}
		res, err := c.TrustChange(t.Context(), wire.TrustChangeRequest{Add: []wire.Trust{{Kind: "revoked", Key: signedtest.Public("maker")}}})
		if err != nil || !slices.Equal(res.Stopped, []string{"hello"}) {
			t.Error(res, err)
		}
		for _, force := range []bool{false, true} {
			if _, err := c.LoopRun(t.Context(), wire.LoopRunRequest{Name: "hello", Force: force}); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "revoked") {
				t.Errorf("a revoked loop, force %v: %v", force, err)
			}
		}
		if _, err := c.LoopRemove(t.Context(), wire.LoopRequest{Name: "memory-upkeep"}); !fault.Is(err, fault.Invalid) {
			t.Error("a loop of ours was removed:", err)
		}
		if _, err := c.LoopRemove(t.Context(), wire.LoopRequest{Name: "hello"}); err != nil {
			t.Error(err)
		}
		if _, err := c.LoopList(t.Context(), wire.LoopListRequest{Name: "hello"}); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		entries, err := c.AuditTail(t.Context(), wire.AuditTailRequest{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, e := range entries.Entries {
			if e.Subject == "loop:hello" && e.Kind != "call" {
				kinds = append(kinds, e.Kind)
			}
		}
		for _, want := range []string{"loop", "grant", "revoke"} {
			if !slices.Contains(kinds, want) {
				t.Errorf("the audit log has %v and no %s", kinds, want)
			}
		}
	})
}

// TestWeakness26InstallsAreHotAndAStartCompilesNothing: each loop was compiled at every
// start, one after another, and an install or a removal needed a restart.
func TestWeakness26InstallsAreHotAndAStartCompilesNothing(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, stop := up(t, o)
	names := []string{"one", "two", "three"}
	for _, name := range names {
		installLoop(t, c, loopOf(t, name, "1.0.0", nil)) // compiled here, once, into the cache on disk
	}
	compiled := func() (n int) {
		err := filepath.WalkDir(o.Instance.LoopCacheDir(), func(_ string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				n++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if compiled() == 0 {
		t.Error("an install compiled nothing")
	}
	for _, name := range names {
		ranWell(t, c, name) // with no restart
	}
	installLoop(t, c, loopOf(t, "one", "2.0.0", nil))
	first := ranWell(t, c, "one")
	list, err := c.LoopList(t.Context(), wire.LoopListRequest{Name: "one"})
	if err != nil || !strings.HasSuffix(first.Definition, list.Loops[0].Signed.SHA256) {
		t.Errorf("it ran as %s: %v", first.Definition, err)
	}
	if _, err := c.LoopRemove(t.Context(), wire.LoopRequest{Name: "three"}); err != nil {
		t.Error(err)
	}
	if _, err := c.LoopRun(t.Context(), wire.LoopRunRequest{Name: "three"}); !fault.Is(err, fault.NotFound) {
		t.Error("a removed loop was started:", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(o.Instance.LoopCacheDir()); err != nil {
		t.Fatal(err)
	}
	c, _ = up(t, o)
	if n := compiled(); n != 0 {
		t.Errorf("a start compiled %d modules", n)
	}
	ranWell(t, c, "two") // what is needed is compiled when it is needed
}
