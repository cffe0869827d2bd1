package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
)

func rules(texts ...string) []Rule {
	var out []Rule
	for _, text := range texts {
		effect, s, _ := strings.Cut(text, " ")
		var r Rule
		if err := r.Effect.UnmarshalText([]byte(effect)); err != nil {
			panic(err)
		}
		r.Scope = scope.Must(s)
		out = append(out, r)
	}
	return out
}

func scopes(texts ...string) []scope.Scope {
	var out []scope.Scope
	for _, s := range texts {
		out = append(out, scope.Must(s))
	}
	return out
}

func assisted(t testing.TB) *Autonomy {
	t.Helper()
	a, err := NewAutonomy(Assisted, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// allowed is an input every layer of which allows the call.
func allowed(t testing.TB) *Input {
	t.Helper()
	roles, err := LoadRoles("/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get(RoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	return &Input{
		Subject: "agent:main", Tool: ToolFacts{Name: "fs.read"}, Scopes: scopes("fs.read:/ws/notes.txt"),
		Grants: role.Grants("agent:main"), Role: role, Tier: Trusted, Autonomy: assisted(t),
		Bounds: []*Layer{NewLayer("run", rules("allow fs.read", "allow memory.write"))},
	}
}

func TestEachLayerCanOnlyTakeAway(t *testing.T) {
	t.Parallel()
	unattended := func(l Level) func(*Input) {
		return func(in *Input) {
			in.Tool.Irreversible, in.Unattended = true, true
			in.Autonomy, _ = NewAutonomy(Manual, map[string]Level{"fs": l})
		}
	}
	for name, c := range map[string]struct {
		change func(*Input)
		want   Effect
		code   Code
		layer  string
		rule   string
	}{
		"nothing changed":     {func(*Input) {}, Allow, "", "", ""},
		"no scope":            {func(in *Input) { in.Scopes = nil }, Deny, CodeNoScope, "call", ""},
		"a malformed scope":   {func(in *Input) { in.Scopes = append(in.Scopes, scope.Scope{}) }, Deny, CodeNoRule, "grants of agent:main by role assistant", ""},
		"no grants":           {func(in *Input) { in.Grants = nil }, Deny, CodeNoRule, "grants of agent:main", ""},
		"empty grants":        {func(in *Input) { in.Grants = NewLayer("grants", nil) }, Deny, CodeNoRule, "grants", ""},
		"a grant that denies": {func(in *Input) { in.Grants = NewLayer("grants", rules("allow fs.read", "deny fs.read:/ws/n*")) }, Deny, CodeRule, "grants", "deny fs.read:/ws/n*"},
		"outside the role": {func(in *Input) {
			in.Grants, in.Scopes = NewLayer("grants", rules("allow fs.read")), scopes("fs.read:/etc/x")
		}, Deny, CodeNoRule, "role assistant", ""},
		"the role asks":          {func(in *Input) { in.Scopes[0], in.Bounds = scope.Must("fs.write:/ws/a"), nil }, Ask, CodeRule, "role assistant", "ask fs.write:/ws/**"},
		"untrusted":              {func(in *Input) { in.Tier = Untrusted }, Deny, CodeTier, "tier untrusted", ""},
		"semitrusted":            {func(in *Input) { in.Tier = SemiTrusted }, Deny, CodeTier, "tier semitrusted", ""},
		"paired reads":           {func(in *Input) { in.Tier = Paired }, Allow, "", "", ""},
		"paired writes":          {func(in *Input) { in.Tier, in.Scopes[0] = Paired, scope.Must("memory.write:x") }, Ask, CodeTier, "tier paired", ""},
		"kernel is not above":    {func(in *Input) { in.Tier, in.Scopes[0] = Kernel, scope.Must("fs.read:/etc/x") }, Deny, CodeNoRule, "role assistant", ""},
		"the run is narrower":    {func(in *Input) { in.Bounds = []*Layer{NewLayer("run", rules("allow fs.read:/ws/x/**"))} }, Deny, CodeNoRule, "run", ""},
		"a missing bound":        {func(in *Input) { in.Bounds = append(in.Bounds, nil) }, Deny, CodeNoRule, "a missing layer", ""},
		"one of two needs fails": {func(in *Input) { in.Scopes = append(in.Scopes, scope.Must("web.search")) }, Deny, CodeNoRule, "role assistant", ""},
		"no levels are manual":   {func(in *Input) { in.Autonomy, in.Scopes[0] = nil, scope.Must("memory.write:x") }, Ask, CodeLevel, "level manual", ""},
		"manual reads":           {func(in *Input) { in.Autonomy = nil }, Allow, "", "", ""},
		"an irreversible tool":   {func(in *Input) { in.Tool.Irreversible = true }, Ask, CodeLevel, "level assisted", ""},
		"supervised, nobody":     {unattended(Supervised), Ask, CodeLevel, "level supervised", ""},
		"autonomous, nobody":     {unattended(Autonomous), Deny, CodeNobody, "level autonomous", ""},
		"standing answers level": {func(in *Input) { unattended(Autonomous)(in); in.Standing = scopes("fs.read:/ws/**") }, Allow, "", "", ""},
		"standing is not a grant": {func(in *Input) {
			in.Scopes[0], in.Standing = scope.Must("web.search"), scopes("web.search")
		}, Deny, CodeNoRule, "role assistant", ""},
		"standing answers the role": {func(in *Input) {
			in.Scopes[0], in.Bounds, in.Standing = scope.Must("fs.write:/ws/a"), nil, scopes("fs.write:/ws/*")
		}, Allow, "", "", ""},
		"standing is too narrow": {func(in *Input) {
			in.Scopes[0], in.Bounds, in.Standing = scope.Must("fs.write:/ws/a"), nil, scopes("fs.write:/ws/b")
		}, Ask, CodeRule, "role assistant", "ask fs.write:/ws/**"},
		"standing does not answer labels": {func(in *Input) {
			in.Label = label.Of(stranger, label.OperatorOnly)
			in.Destination, in.Standing = Destination{Emits: true, Readers: chatX, Name: "x"}, scopes("fs.read")
		}, Ask, CodeLeak, "labels", ""},
		"untrusted and irreversible": {func(in *Input) {
			in.Label, in.Tool.Irreversible, in.Standing = label.Of(stranger, label.Anyone), true, scopes("fs.read")
		}, Ask, CodeUntrusted, "labels", ""},
		"over budget":    {func(in *Input) { in.Budget = Budget{true, 9, 10} }, Deny, CodeBudget, "budget", ""},
		"budget is met":  {func(in *Input) { in.Budget = Budget{true, 10, 10} }, Allow, "", "", ""},
		"budget is gone": {func(in *Input) { in.Budget = Budget{true, -1, 0} }, Deny, CodeBudget, "budget", ""},
		"over rate":      {func(in *Input) { in.OverRate = true }, Deny, CodeRate, "rate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := allowed(t)
			c.change(in)
			d := Decide(in)
			if d.Effect != c.want {
				t.Fatalf("%s, want %s", d, c.want)
			}
			if c.want == Allow {
				if d.Reasons != nil {
					t.Fatalf("reasons on allow: %v", d.Reasons)
				}
				return
			}
			if !slices.ContainsFunc(d.Reasons, func(r Reason) bool {
				return r.Code == c.code && r.Layer == c.layer && r.Rule == c.rule && r.Effect == c.want && r.Text != ""
			}) {
				t.Fatalf("no reason %s of %q with rule %q in %+v", c.code, c.layer, c.rule, d.Reasons)
			}
			if slices.ContainsFunc(d.Reasons, func(r Reason) bool { return r.Effect != d.Effect }) {
				t.Fatalf("reasons for another effect: %+v", d.Reasons)
			}
			if wantPark := name == "supervised, nobody"; d.Park != wantPark {
				t.Fatalf("park = %v", d.Park)
			}
		})
	}
}

func TestLayerDecidesPartsAndWholes(t *testing.T) {
	t.Parallel()
	layer := NewLayer("l", rules("allow fs.write:/ws/**", "ask fs.write:/ws/src/**", "deny fs.write:/ws/.git/**",
		"allow email.send:a,b", "deny email.send:c", "ask net.fetch:https://x.io/a", "allow net.fetch:https://x.io"))
	for need, want := range map[string]Effect{
		"fs.write:/ws/a":                  Allow,
		"fs.write:/ws/src/a":              Ask,
		"fs.write:/ws/.git/config":        Deny,
		"fs.write:/ws/**":                 Deny, // a part of it is denied
		"fs.write:/ws/t*":                 Allow,
		"fs.write:/ws/s*":                 Ask,
		"fs.write:/ws/s*/x":               Ask,
		"fs.write":                        Deny,
		"fs.read:/ws/a":                   Deny,
		"email.send:a,b":                  Allow,
		"email.send:a,c":                  Deny,
		"email.send:a,d":                  Deny,
		"net.fetch:https://x.io/b":        Allow,
		"net.fetch:https://x.io/a/b":      Ask,
		"net.fetch:https://x.io/b/..%2fa": Ask, // a server may read it as /a
		"net.fetch:https://y.io":          Deny,
	} {
		if got, rule := layer.judge(scope.Must(need)); got != want {
			t.Errorf("%s: %s by %v, want %s", need, got, rule, want)
		}
	}
}

func TestAnAskAloneDoesNotWidenWhatIsCovered(t *testing.T) {
	t.Parallel()
	layer := NewLayer("l", rules("ask fs.write:/ws/a/**"))
	if got, _ := layer.judge(scope.Must("fs.write:/ws/**")); got != Deny {
		t.Errorf("an ask for a part of the need: %s, want deny", got)
	}
}

func TestExplainNamesEveryLayerAndIsReadable(t *testing.T) {
	t.Parallel()
	in := allowed(t)
	in.Bounds = append(in.Bounds, NewLayer("parent agent:boss", rules("deny fs.read:/ws/notes.txt")))
	d := Explain(in)
	var layers []string
	for _, r := range d.Reasons {
		layers = append(layers, r.Layer)
	}
	want := "role assistant, run, parent agent:boss, grants of agent:main by role assistant, tier trusted"
	if got := strings.Join(layers, ", "); got != want {
		t.Errorf("layers: %s\nwant:   %s", got, want)
	}
	if got := d.String(); got != `deny: parent agent:boss: rule "deny fs.read:/ws/notes.txt" decides on fs.read:/ws/notes.txt` {
		t.Errorf("in words: %s", got)
	}
	raw, err := json.Marshal(d)
	if err != nil || !strings.Contains(string(raw), `{"decision":"deny","reasons":[{"effect":"allow","code":"rule"`) {
		t.Errorf("as JSON: %s, %v", raw, err)
	}
}

func TestDecideLeavesOutAsksThatWereAnswered(t *testing.T) {
	t.Parallel()
	in := allowed(t)
	in.Scopes, in.Bounds, in.Standing = scopes("fs.write:/ws/a", "shell.exec:ls"), nil, scopes("fs.write:/ws/a")
	d := Decide(in)
	if d.Effect != Ask || len(d.Reasons) == 0 || slices.ContainsFunc(d.Reasons, func(r Reason) bool { return r.Scope != "shell.exec:ls" }) {
		t.Errorf("%s, reasons %+v", d, d.Reasons)
	}
}

func TestNamesReadBack(t *testing.T) {
	t.Parallel()
	for _, e := range []Effect{Deny, Ask, Allow} {
		var got Effect
		if err := got.UnmarshalText([]byte(e.String())); err != nil || got != e {
			t.Errorf("effect %s reads back as %s, %v", e, got, err)
		}
	}
	for tier := Untrusted; tier <= Kernel; tier++ {
		var got Tier
		if err := got.UnmarshalText([]byte(tier.String())); err != nil || got != tier {
			t.Errorf("tier %s reads back as %s, %v", tier, got, err)
		}
	}
	for level := Manual; level <= Autonomous; level++ {
		var got Level
		if err := got.UnmarshalText([]byte(level.String())); err != nil || got != level {
			t.Errorf("level %s reads back as %s, %v", level, got, err)
		}
	}
	var tier Tier
	if err := tier.UnmarshalText([]byte("root")); err == nil {
		t.Error("tier root is known")
	}
	if _, err := NewAutonomy(Manual, map[string]Level{"filesystem": Assisted}); err == nil {
		t.Error("area filesystem is known")
	}
}

func TestAuthorityNeverComesFromAChat(t *testing.T) {
	t.Parallel()
	for _, b := range scope.Bases() {
		for tier := Untrusted; tier <= Paired; tier++ {
			if authority[b] && tier.ceiling(b) != Deny {
				t.Errorf("tier %s holds %s", tier, b)
			}
			if tier.ceiling(b) > (tier+1).ceiling(b) && tier != SemiTrusted {
				t.Errorf("tier %s holds more of %s than the one above", tier, b)
			}
		}
		if Untrusted.ceiling(b) != Deny {
			t.Errorf("untrusted holds %s", b)
		}
	}
}

func big(t testing.TB) *Input {
	t.Helper()
	in := allowed(t)
	var many []string
	for _, b := range scope.Bases() {
		many = append(many, "allow "+b.String())
	}
	for range 5 {
		many = append(many, "deny fs.read:/ws/**/*.pem", "ask fs.read:/ws/private/**/x*y")
	}
	in.Grants = NewLayer("grants", rules(many...))
	in.Scopes = scopes("fs.read:/ws/a/b/notes.txt", "memory.write:notes")
	in.Bounds = []*Layer{in.Grants, in.Grants}
	in.Standing = scopes("fs.write:/ws/**")
	in.Label = label.Join(label.Of(stranger, chatX), label.Of(label.Operator, label.Anyone))
	in.Destination = Destination{Emits: true, Readers: chatX}
	in.Budget = Budget{true, 100, 1}
	return in
}

func TestAllowDoesNotAllocate(t *testing.T) {
	in := big(t)
	if n := testing.AllocsPerRun(200, func() {
		if Decide(in).Effect != Allow {
			t.Fatal(Explain(in))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	for name, in := range map[string]*Input{"assistant": allowed(b), "large": big(b)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Decide(in).Effect != Allow {
					b.Fatal(Explain(in))
				}
			}
		})
	}
}
