package signed

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/wasmloop"
)

func TestAnInstallIsThereAtOnceWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		data := hello(t, "1.0.0", nil)
		x := s.install(data)
		if got, err := s.Get(t.Context(), "loop:hello"); err != nil || got.SHA256 != Sum(data) || got.Manifest.Version != "1.0.0" || got.By != "operator" ||
			got.Tier != wasmloop.TierCommunity || got.Publisher != signedtest.Public("maker") || got.Format != 2 || got.At != x.At {
			t.Errorf("%+v %v", got, err)
		}
		if now, there := s.Current("hello"); !there || now.SHA256 != x.SHA256 {
			t.Errorf("%v %+v", there, now)
		}
		if got := s.targets(); !slices.Equal(got, []string{"loop:hello at @every 1h"}) {
			t.Error(got)
		}
		if got := s.events(); !slices.Equal(got, []string{"loop.installed"}) {
			t.Error(got)
		}
		s.has(s.told, "hello 1.0.0 was installed")
		a, err := s.Artifact(t.Context(), x.SHA256)
		if err != nil || a.Manifest.Name != "hello" {
			t.Fatal(err)
		}
		if v, err := s.Verify(t.Context(), ""); err != nil || len(v) != 1 || v[0].Problem != nil {
			t.Errorf("%+v %v", v, err)
		}
	})
}

func TestWhatIsNotVouchedForNeedsItsNameTyped(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		nameless := func(o *Order) { o.Name = "" }
		community := hello(t, "1.0.0", nil)
		for what, c := range map[string]struct {
			data []byte
			do   func(*Order)
			want string
		}{
			"a publisher nobody trusts": {community, nameless, "only its publisher has signed it"},
			"no signature":              {signedtest.V2(t, wasmloop.Manifest{}, signedtest.Module(""), "", ""), nameless, "nobody has signed it"},
			"another name":              {community, func(o *Order) { o.Name = "Hello" }, `"Hello" was typed`},
			"a registry nobody trusts":  {signedtest.V2(t, wasmloop.Manifest{}, signedtest.Module(""), "maker", "shop"), nameless, "only its publisher"},
		} {
			_, err := s.try(c.data, c.do)
			if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := s.count("signed_loops") + s.count("signed_artifacts"); n != 0 {
			t.Errorf("%d rows were written", n)
		}
		for what, c := range map[string]struct {
			row  TrustRow
			own  string
			data []byte
		}{
			"a trusted publisher": {row: TrustRow{Kind: Publisher, Key: signedtest.Public("maker")}, data: community},
			"the community":       {row: TrustRow{Kind: Community}, data: community},
			"a trusted registry": {
				row: TrustRow{Kind: Registry, Key: signedtest.Public("shop")}, data: signedtest.V2(t, wasmloop.Manifest{}, signedtest.Module(""), "maker", "shop"),
			},
			"this machine's own key": {own: signedtest.Public("maker"), data: community},
		} {
			s.own = c.own
			if c.row.Kind != "" {
				s.trust(c.row)
			}
			if _, err := s.try(c.data, nameless); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := s.Remove(t.Context(), "hello", "operator"); err != nil {
				t.Error(what, err)
			}
			if c.row.Kind != "" {
				if _, _, err := s.Change(t.Context(), Trusting{Remove: []TrustRow{c.row}, By: "operator"}); err != nil {
					t.Error(what, err)
				}
			}
		}
	})
}

// TestWeakness14WhatV1DoesNotSignIsConfirmedLineByLine: whoever serves a file of v1 can add
// tools to a loop that a registry has signed.
func TestWeakness14WhatV1DoesNotSignIsConfirmedLineByLine(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		s.trust(TrustRow{Kind: Registry, Key: signedtest.Public("shop")})
		m := wasmloop.Manifest{Name: "cold-scan", Host: []string{wasmloop.FnTool}, Capabilities: []string{"tool:fs.read"}}
		honest := signedtest.V1(t, m, signedtest.Module(""), "maker", "shop")
		if _, err := s.try(honest, nil); err != nil {
			t.Fatal(err)
		}
		a, err := wasmloop.Unpack(honest)
		if err != nil {
			t.Fatal(err)
		}
		evil := a.Manifest
		evil.Tools = []string{"fs.write", "shell.exec"}
		evil.Description = "harmless"
		tampered := signedtest.PackV1(t, evil, a.Module, a.Signatures)
		sha := s.hand(tampered)
		p, err := s.Inspect(t.Context(), sha)
		if err != nil {
			t.Fatal(err) // as the described system would: the signature holds
		}
		if p.Verdict.Tier != wasmloop.TierRegistry || len(p.Unsigned) != 3 {
			t.Errorf("tier %s, unsigned %q", p.Verdict.Tier, p.Unsigned)
		}
		s.has(p.Unsigned, "shell.exec")
		s.has(p.More, "call the tool shell.exec") // and the diff of an upgrade shows it
		if _, err := s.try(tampered, func(o *Order) { o.Unsigned = nil }); !fault.Is(err, fault.Denied) {
			t.Error("an unconfirmed line was let in:", err)
		}
		if _, err := s.try(tampered, func(o *Order) { o.Unsigned = o.Unsigned[1:] }); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "fs.write") {
			t.Error("one unconfirmed line was let in:", err)
		}
		if _, err := s.try(tampered, nil); err != nil {
			t.Error(err)
		}
		// The whole file is pinned, so what is in the store is what was confirmed.
		if x, err := s.Get(t.Context(), "cold-scan"); err != nil || x.SHA256 != sha {
			t.Errorf("%+v %v", x, err)
		}
		// Of our format nothing is left out of the signature.
		ours, err := wasmloop.Unpack(hello(t, "1.0.0", nil))
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func(*wasmloop.Manifest){
			"tools":       func(m *wasmloop.Manifest) { m.Tools = []string{"shell.exec"} },
			"provides":    func(m *wasmloop.Manifest) { m.Provides = []wasmloop.ToolSpec{{Name: "x"}} },
			"description": func(m *wasmloop.Manifest) { m.Description = "other" },
		} {
			m := ours.Manifest
			change(&m)
			data, err := wasmloop.Pack(m, ours.Module, ours.Signatures)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.try(data, nil); !fault.Is(err, fault.Verification) {
				t.Errorf("%s changed: %v", what, err)
			}
		}
	})
}

func TestAnUpgradeShowsWhatChangesAndADowngradeIsTold(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		s.trust(TrustRow{Kind: Publisher, Key: signedtest.Public("maker")})
		first := s.install(hello(t, "1.0.0", nil))
		if _, err := s.Set(t.Context(), Change{Name: "hello", By: "operator", Set: map[string]string{"greeting": "hej"}}); err != nil {
			t.Fatal(err)
		}
		next := hello(t, "1.2.0", func(m *wasmloop.Manifest) {
			m.Host = append(m.Host, wasmloop.FnHTTP)
			m.Capabilities = []string{"tool:app.push", "http:*.example.com"}
			m.Schedule, m.Events = "", []string{"comms.message"}
		})
		p, err := s.Inspect(t.Context(), s.hand(next))
		if err != nil {
			t.Fatal(err)
		}
		if p.Replaces == nil || p.Replaces.Manifest.Version != "1.0.0" || p.Downgrade != "" || p.Name != "" || p.Same {
			t.Errorf("%+v", p)
		}
		s.has(p.More, "every host under example.com")
		s.has(p.More, "run at each event comms.message")
		s.has(p.Less, "run by itself at @every 1h")
		s.has(p.Diff.Added, "http:*.example.com")
		s.has(p.Worst, "the events that start it to *.example.com")
		x := s.install(next)
		if x.First != first.At || x.Settings.Values["greeting"] != "hej" {
			t.Errorf("an upgrade lost what was set: %+v", x)
		}
		if got := s.targets(); !slices.Equal(got, []string{"loop:hello on comms.message"}) {
			t.Error(got)
		}
		old := hello(t, "1.1.9", nil)
		if _, err := s.try(old, func(o *Order) { o.Downgrade = false }); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "1.1.9 is older than 1.2.0") {
			t.Error(err)
		}
		if _, err := s.try(old, nil); err != nil {
			t.Error(err)
		}
		other := signedtest.V2(t, wasmloop.Manifest{Version: "2.0.0"}, signedtest.Module("other"), "thief", "")
		s.trust(TrustRow{Kind: Publisher, Key: signedtest.Public("thief")})
		if _, err := s.try(other, func(o *Order) { o.Name = "" }); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "signed by another") {
			t.Error("another publisher took the name over:", err)
		}
	})
}

func TestWhatCannotBeRunHereIsRefused(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		with := func(change func(*wasmloop.Manifest)) []byte { return hello(t, "1.0.0", change) }
		for what, c := range map[string]struct {
			data  []byte
			class fault.Class
			want  string
		}{
			"no loop":        {[]byte("hello, this is no loop"), fault.Invalid, "which no loop does"},
			"cut":            {with(nil)[:100], fault.Invalid, "the file is cut"},
			"a byte more":    {append(with(nil), 0), fault.Verification, "sha256"},
			"its name":       {with(func(m *wasmloop.Manifest) { m.Name = "hällo" }), fault.Invalid, "cannot be called"},
			"a name of ours": {with(func(m *wasmloop.Manifest) { m.Name = "memory-upkeep" }), fault.Conflict, "part of ombud"},
			"a function":     {with(func(m *wasmloop.Manifest) { m.Host = []string{"teleport"} }), fault.Invalid, "teleport"},
			"a capability":   {with(func(m *wasmloop.Manifest) { m.Capabilities = []string{"htpp:x"} }), fault.Invalid, `"htpp:x"`},
			"a schedule":     {with(func(m *wasmloop.Manifest) { m.Schedule = "often" }), fault.Invalid, "often"},
			"its memory":     {with(func(m *wasmloop.Manifest) { m.MemoryMB = 5000 }), fault.Invalid, "5000 MiB"},
			"an event":       {with(func(m *wasmloop.Manifest) { m.Events = []string{"trigger.added"} }), fault.Invalid, "trigger.added"},
		} {
			if _, err := s.try(c.data, nil); !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := s.count("signed_loops"); n != 0 {
			t.Errorf("%d loops are installed", n)
		}
		p, err := s.Inspect(t.Context(), s.hand(with(func(m *wasmloop.Manifest) {
			m.Host, m.Tools = []string{wasmloop.FnTool}, []string{"fs.read", "crm.write"}
		})))
		if err != nil || !slices.Equal(p.Missing, []string{"crm.write"}) {
			t.Errorf("missing %q, %v", p.Missing, err)
		}
		v1 := signedtest.V1(t, wasmloop.Manifest{Host: []string{"teleport"}, Capabilities: []string{"x"}}, signedtest.Module(""), "maker", "")
		if p, err = s.Inspect(t.Context(), s.hand(v1)); err != nil || !slices.Equal(p.Unknown, []string{"teleport"}) {
			t.Errorf("unknown %q, %v", p.Unknown, err)
		}
	})
}

func TestARevokedKeyStopsWhatItSigned(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		x := s.install(hello(t, "1.0.0", nil))
		revoked := TrustRow{Kind: Revoked, Key: signedtest.Public("maker")}
		if _, _, err := s.Change(t.Context(), Trusting{By: "operator"}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a change of nothing: %v", err)
		}
		stopped, _, err := s.Change(t.Context(), Trusting{Add: []TrustRow{revoked}, By: "operator"})
		if err != nil || !slices.Equal(stopped, []string{"hello"}) {
			t.Fatal(stopped, err)
		}
		s.has(s.told, "is stopped: hello")
		if got := s.targets(); !slices.Equal(got, []string{"loop:hello paused at @every 1h"}) {
			t.Error(got)
		}
		if now, _ := s.Current("hello"); now.Revoked != revoked.Key || now.Stopped() == "" {
			t.Errorf("%+v", now)
		}
		if _, err := s.Artifact(t.Context(), x.SHA256); !fault.Is(err, fault.Denied) {
			t.Error(err)
		}
		if _, err := s.try(hello(t, "1.1.0", nil), nil); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "revoked") {
			t.Error(err)
		}
		if v, err := s.Verify(t.Context(), "hello"); err != nil || !fault.Is(v[0].Problem, fault.Denied) {
			t.Errorf("%+v %v", v, err)
		}
		_, freed, err := s.Change(t.Context(), Trusting{Remove: []TrustRow{revoked}, By: "operator"})
		if err != nil || !slices.Equal(freed, []string{"hello"}) || s.targets()[0] != "loop:hello at @every 1h" {
			t.Error(freed, err, s.targets())
		}
	})
}

func TestAnApprovalThatWasOvertakenIsRefused(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		data := hello(t, "1.0.0", nil)
		s.d.Prepare = nil
		overtake := func() { s.trust(TrustRow{Kind: Revoked, Key: signedtest.Public("maker")}) }
		s.Library = New(func() Deps {
			d := s.d
			d.Prepare = func(context.Context, *wasmloop.Artifact) error { overtake(); return nil }
			return d
		}())
		if _, err := s.try(data, nil); !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
		if n := s.count("signed_loops"); n != 0 {
			t.Error("it is installed all the same")
		}
	})
}

func TestARemovedLoopHasNothingLeftThatStartsIt(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		s.install(hello(t, "1.0.0", nil))
		if _, err := s.Remove(t.Context(), "loop:hello", "operator"); err != nil {
			t.Fatal(err)
		}
		if got := s.targets(); len(got) != 0 {
			t.Error(got)
		}
		if _, there := s.Current("hello"); there {
			t.Error("it is still current")
		}
		if _, err := s.Remove(t.Context(), "hello", "operator"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		if got := s.events(); !slices.Equal(got, []string{"loop.installed", "loop.removed"}) {
			t.Error(got)
		}
	})
}
