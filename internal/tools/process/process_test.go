//go:build unix

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestACallReachesAToolAndItsAnswerComesBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := setup(t, d, quick())
		s.add(spec("good"))
		s.ready()
		if got := s.says("act.echo", `{"a":[1,"ü"]}`); got != `{"input":{"a":[1,"ü"]},"key":"run_1/tool/0.0"}` {
			t.Error(got)
		}
		for name, want := range map[string]string{
			"act.text":      "a\uFFFD b\uFFFD c⟦U+202E⟧\uFFFD d",
			"act.chunks":    "one two three",
			"act.events":    "done",
			"act.twice":     "first",
			"act.unknown":   "mine",
			"act.unchecked": "[act did not check whether this had its effect]\n" + `{"sent":true}`,
		} {
			if got := s.says(name, `{}`); got != want {
				t.Errorf("%s says %q, want %q", name, got, want)
			}
		}
		if got := s.says("act.big", `{}`); len(got) != 6_000_000 {
			t.Errorf("a big result has %d bytes; what is kept of it is the caller's to bound", len(got))
		}
		if got := s.entries(KindRegistered); len(got) != 1 || !strings.Contains(got[0], "echo") {
			t.Errorf("audited: %v", got)
		}
		if got := s.entries(KindAdded); len(got) != 1 {
			t.Errorf("audited: %v", got)
		}
		evs, err := s.log.Read(t.Context(), 0, 10, eventlog.Filter{Kinds: []string{KindAdded}})
		if err != nil || len(evs) != 1 || !strings.Contains(string(evs[0].Data), `"scopes":[{"scope":"tool:act.*"}]`) {
			t.Errorf("what was added is not in the event: %v, %v", evs, err)
		}
	})
}

func TestWhatAToolIsTakenFor(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Reads, sp.Repeatable, sp.Narrow = []string{"echo"}, []string{"slow"}, []Bound{{Tool: "env", Scope: scope.Must("tool:act.env")}}
	sp.Write = []string{"/notes"}
	s.add(sp)
	s.ready()
	def := func(name string) tool.Definition {
		d, err := s.tools.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	echo, slow, die := def("act.echo"), def("act.slow"), def("act.die")
	if !echo.ReadOnly || echo.Irreversible || echo.Repeat != tool.Repeatable {
		t.Errorf("declared to change nothing: %+v", echo)
	}
	if slow.ReadOnly || !slow.Irreversible || slow.Repeat != tool.Repeatable {
		t.Errorf("declared repeatable: %+v", slow)
	}
	if die.ReadOnly || !die.Irreversible || die.Repeat != tool.AtMostOnce {
		t.Errorf("not declared to be anything: %+v", die)
	}
	if die.Source != label.Untrusted("tool:act") || die.Timeout != defaultTimeout || die.MaxOutput != maxOutput {
		t.Errorf("%+v", die)
	}
	if got := die.Touches(nil); !slices.Equal(got, sp.Write) {
		t.Errorf("may change %v", got)
	}
	needs, err := die.Scopes(nil)
	if err != nil || len(needs) != 1 || needs[0].String() != "tool:act.die" {
		t.Errorf("needs %v, %v", needs, err)
	}
	if to := die.Destination(nil); to.Nobody || to.Readers != label.Anyone {
		t.Errorf("without walls it tells %+v", to)
	}
}

// Adding a process gives nobody anything, not even those who hold all its tools say
// they need: each call needs a scope of its own that nobody had.
func TestAToolNeedsAScopeThatNobodyHolds(t *testing.T) {
	t.Parallel()
	sp := spec("good")
	sp.Scopes = []Bound{{Scope: scope.Must("memory.read")}}
	raw := json.RawMessage(`{"name":"look","description":"d","input_schema":{"type":"object"},"required_scope":"memory.read:x"}`)
	got := sp.judge(registration{Tools: []json.RawMessage{raw}})[0]
	if !slices.Equal(got.Needs, []string{"tool:act.look", "memory.read:x"}) || got.Refused != "" {
		t.Errorf("%+v", got)
	}
}

func TestBadToolsAreQuarantinedWithAReasonAndTheGoodOneWorks(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("schemas"))
	info := s.ready()
	if got := s.says("act.good", `{}`); !strings.Contains(got, "input") {
		t.Error(got)
	}
	reasons := map[string]string{
		"act.string": "root has type string", "act.dollar": `"$.xgafv"`, "act.allof": "/allOf/0 has type string",
		"act.items": "type array without items", "act.anyof": "/anyOf/0 has type string", "act.noschema": "must be an object",
		"act.wide": "net.fetch, which is more than the operator allowed: tool:act.*", "act.malformed": "malformed path",
		"act.unknown": "did you mean fs.read", "act.none": "names no scope", "act.good": "registered twice",
	}
	refused := 0
	for _, tl := range info.Tools {
		if tl.Refused == "" {
			continue
		}
		refused++
		if want, ok := reasons[tl.Name]; ok && !strings.Contains(tl.Refused, want) {
			t.Errorf("%s is refused because %q, want %q", tl.Name, tl.Refused, want)
		}
		delete(reasons, tl.Name)
		if len(tl.Needs) != 0 {
			t.Errorf("%s is refused and needs %v", tl.Name, tl.Needs)
		}
	}
	if len(reasons) > 0 || refused != 14 || len(s.tools.List()) != 1 || len(s.tools.Quarantined()) != 14 {
		t.Errorf("not refused: %v; %d refused, %d usable, %d in quarantine: %+v", reasons, refused, len(s.tools.List()), len(s.tools.Quarantined()), info.Tools)
	}
}

func TestScopesCanOnlyBeNarrowedAndNamesAreAList(t *testing.T) {
	t.Parallel()
	of := func(name, needs string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"name":%q,"description":"d","input_schema":{"type":"object"},"required_scope":%q}`, name, needs))
	}
	bounds := func(texts ...string) (out []Bound) {
		for _, text := range texts {
			b, err := ParseBound(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	for name, c := range map[string]struct {
		scopes, narrow []string
		tool, needs    string
		want, refused  string
	}{
		"within":              {[]string{"net.fetch"}, nil, "get", "net.fetch:https://a.example", "net.fetch:https://a.example", ""},
		"wider":               {[]string{"net.fetch:https://a.example"}, nil, "get", "net.fetch", "", "more than the operator allowed"},
		"other base":          {[]string{"net.fetch"}, nil, "get", "net.post", "", "more than the operator allowed"},
		"not listed":          {[]string{"put=net.post"}, nil, "get", "net.post", "", "not among the tools"},
		"listed":              {[]string{"put=net.post"}, nil, "put", "net.post", "net.post", ""},
		"the other's ceiling": {[]string{"put=net.post", "get=net.fetch"}, nil, "get", "net.post", "", "allowed: net.fetch"},
		"with its own prefix": {[]string{"get=net.fetch"}, nil, "act.get", "net.fetch", "net.fetch", ""},
		"narrowed":            {[]string{"net.fetch"}, []string{"get=net.fetch:https://a.example"}, "get", "net.fetch", "net.fetch:https://a.example", ""},
		"narrowed into what is allowed": {
			[]string{"net.fetch:https://a.example"}, []string{"get=net.fetch:https://a.example/x"}, "get", "net.fetch", "net.fetch:https://a.example/x", "",
		},
		"widened":                  {[]string{"net.fetch"}, []string{"get=net.fetch"}, "get", "net.fetch:https://a.example", "", "can only be narrowed"},
		"another":                  {[]string{"net.fetch", "net.post"}, []string{"get=net.post"}, "get", "net.fetch", "", "can only be narrowed"},
		"notices are no ceiling":   {[]string{"notify.send:operator"}, nil, "say", "notify.send:operator", "", "not among the tools"},
		"notices beside the tools": {[]string{"notify.send:operator", "get=net.fetch"}, nil, "get", "net.fetch", "net.fetch", ""},
	} {
		sp := Spec{Name: "act", Command: []string{"/bin/true"}, Scopes: bounds(c.scopes...), Narrow: bounds(c.narrow...)}
		if err := sp.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := sp.judge(registration{Tools: []json.RawMessage{of(c.tool, c.needs)}})[0]
		if c.refused != "" {
			if !strings.Contains(got.Refused, c.refused) || len(got.Needs) > 0 {
				t.Errorf("%s: %+v, want refused with %q", name, got, c.refused)
			}
			continue
		}
		if got.Refused != "" || !slices.Equal(got.Needs, []string{"tool:act." + strings.TrimPrefix(c.tool, "act."), c.want}) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

func TestASpecThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	good := func() Spec {
		return Spec{Name: "act", Command: []string{"/bin/true"}, Scopes: []Bound{{Scope: scope.Must("tool:act")}}}
	}
	sp := good()
	if err := sp.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"a tool process's name":      func(s *Spec) { s.Name = "Act" },
		"must be an absolute path":   func(s *Spec) { s.Command = []string{"true"} },
		"at least one scope":         func(s *Spec) { s.Scopes = nil },
		"empty scope":                func(s *Spec) { s.Scopes = []Bound{{}} },
		"every scope of act names":   func(s *Spec) { s.Scopes = append(s.Scopes, Bound{Tool: "x", Scope: scope.Must("tool:act")}) },
		"none, proxy or all":         func(s *Spec) { s.Network = "some" },
		"NUL byte":                   func(s *Spec) { s.Command = append(s.Command, "a\x00") },
		"clean absolute path":        func(s *Spec) { s.Read = []string{"/a/../b"} },
		"into the variable \"PATH\"": func(s *Spec) { s.Secrets = map[string]string{"PATH": "x"} },
		"not a name of a secret":     func(s *Spec) { s.Secrets = map[string]string{"KEY": "two words"} },
		"takes at most":              func(s *Spec) { s.Timeout = time.Hour },
		"once for a tool":            func(s *Spec) { s.Narrow = []Bound{{Scope: scope.Must("tool:act")}} },
		"entries, at most":           func(s *Spec) { s.Read = slices.Repeat([]string{"/a"}, 100) },
		"no name of a tool":          func(s *Spec) { s.Reads = []string{"a b"} },
		"may register": func(s *Spec) {
			s.Scopes, s.Repeatable = []Bound{{Tool: "x", Scope: scope.Must("tool:act")}}, []string{"y"}
		},
	} {
		sp := good()
		change(&sp)
		if err := sp.Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestAProcessThatBreaksTheProtocolIsEnded: whatever it does, it is ended with a
// reason a person can use, started again later, and never twice at a time.
func TestAProcessThatBreaksTheProtocolIsEnded(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"die-at-start":    "exit code 3; the last it said: I die at once",
		"die-after-hello": "exit code 3",
		"garbage":         "a frame that is not JSON",
		"text":            `plain text on its standard output, which begins with "hell"`,
		"half":            "exit code 0",
		"huge":            "over the limit",
		"version":         "it speaks version 9.1, ombud speaks 0.1",
		"no-type":         "not an object with a type",
		"wrong-types":     "a ToolRegister that cannot be read",
		"early":           "a ToolResult before it has registered",
		"twice":           "registers a second time",
		"many":            "registers 200 tools, at most 128",
		"closed":          "closed its standard output and lived on",
		"unknown-types":   "messages that are of no use",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := setup(t, dbtest.SQLite(t), quick())
			s.add(spec(mode))
			s.failing(want)
			s.until("started again", func(i Info) bool { return i.Failures > 1 })
			if _, _, most := s.bare.counts(); most > 1 {
				t.Errorf("%d children at a time", most)
			}
		})
	}
}

func TestAProcessThatNeverRegistersIsEndedAfterAWhile(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"silent", "half-and-live"} {
		cfg := quick()
		cfg.Handshake = 300 * time.Millisecond
		s := setup(t, dbtest.SQLite(t), cfg)
		s.add(spec(mode))
		s.failing("did not register within 300ms")
	}
}

// TestTwoHundredFailedHandshakesLeaveNothing is row 81: no children pile up, and no
// descriptors.
func TestTwoHundredFailedHandshakesLeaveNothing(t *testing.T) {
	cfg := quick()
	cfg.Backoff, cfg.CrashLoop = []time.Duration{time.Millisecond}, 50
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("die-after-hello"))
	s.until("failed", func(i Info) bool { return i.Failures >= 10 })
	before := descriptors(t)
	s.until("failed 200 times", func(i Info) bool { return i.Failures >= 200 })
	if after := descriptors(t); after > before+12 { // three of a child that is just starting, and the store's
		t.Errorf("%d descriptors, were %d", after, before)
	}
	if _, _, most := s.bare.counts(); most > 1 {
		t.Errorf("%d children at a time", most)
	}
	if got := s.entries(KindCrashLoop); len(got) != 1 || !strings.Contains(got[0], "exit code 3") {
		t.Errorf("a crash loop is said once: %v", got)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

func TestACallWhoseProcessDiesIsUnknownUnlessItCanBeRepeated(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("good"))
	s.ready()
	_, err := s.call(t.Context(), "act.die", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "about to die") {
		t.Errorf("a call under way: %v", err)
	}
	if got := s.says("act.exit-after", `{}`); got != "my last word" {
		t.Errorf("what it said before it ended is lost: %q", got)
	}
	s.until("ended", func(i Info) bool { return i.Failures == 2 }) // before, it might still have been told of a call
	if got := s.says("act.echo", `{}`); got == "" {
		t.Error("not there again")
	}
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	sp := spec("good")
	sp.Repeatable = []string{"die"}
	s.add(sp)
	s.ready()
	if _, err := s.call(t.Context(), "act.die", `{}`); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "can be made again") {
		t.Errorf("a call that can be repeated: %v", err)
	}
}

func TestWhatAToolSaysOfAFailureIsTold(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("good"))
	s.ready()
	_, err := s.call(t.Context(), "act.escalate", `{}`)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "asks for more than it was given and did not do it: I want⟦U+202E⟧ more") {
		t.Errorf("an escalation: %v", err)
	}
	_, err = s.call(t.Context(), "act.fail", `{}`)
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "act says: no such\uFFFD thing (not_found)") {
		t.Errorf("a failure: %v", err)
	}
}

func TestACancelledCallEndsPolitelyOrWithItsProcess(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("good"))
	pid := s.ready().PID
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.call(ctx, "act.slow", `{}`)
	if !fault.Is(err, fault.Cancelled) || !strings.Contains(err.Error(), "as you wish") {
		t.Errorf("a tool that heeds it: %v", err)
	}
	if now := s.ready().PID; now != pid {
		t.Error("the process was ended for nothing")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var other error
	var wg sync.WaitGroup
	wg.Go(func() { _, other = s.call(context.Background(), "act.slow", `{}`) })
	_, err = s.call(ctx, "act.stubborn", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "did not end a call that was cancelled") {
		t.Errorf("a tool that ignores it: %v", err)
	}
	wg.Wait()
	if !fault.Is(other, fault.Unknown) && !fault.Is(other, fault.Unavailable) { // it may have waited for the next child
		t.Errorf("the other call of the process: %v", other)
	}
	s.until("started again", func(i Info) bool { return i.State == Ready && i.PID != pid && i.PID != 0 })
}

func TestAFloodEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"act.flood-events": "a flood", "act.flood-chunks": "a flood", "act.stray": "of no use"} {
		s := setup(t, dbtest.SQLite(t), quick())
		s.add(spec("good"))
		s.ready()
		_, err := s.call(t.Context(), name, `{}`)
		if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		s.until("started again", func(i Info) bool { return i.State == Ready && i.Failures == 1 && i.PID != 0 })
	}
}

func TestStandardErrorIsBoundedRedactedAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("stderr"))
	s.ready()
	s.says("act.echo", `{}`)
	if n := strings.Count(s.logged.String(), "noise"); n > 60*30 {
		t.Errorf("%d words of noise are in the log", n)
	}
	l := newLines(s.Logger, s.Redact)
	fmt.Fprintf(l, "open sesame\nthe second %s", strings.Repeat("x", 10_000))
	l.flush()
	log := s.logged.String()
	if strings.Contains(log, "sesame") || !strings.Contains(log, "open •••") || strings.Contains(log, strings.Repeat("x", 2*lineLength)) {
		t.Error(log)
	}
}

func TestCallsOverlapUpToABound(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Calls = 2
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("good"))
	s.ready()
	slow, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.call(slow, "act.slow", `{}`) })
	if got := s.says("act.echo", `{}`); got == "" {
		t.Error("a slow call holds up another")
	}
	wg.Go(func() { _, _ = s.call(slow, "act.slow", `{}`) })
	s.until("two under way", func(Info) bool { x, _ := s.get("act"); return len(x.slots) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx, "act.echo", `{}`); !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "2 calls under way") {
		t.Errorf("over the bound: %v", err)
	}
	stop()
	wg.Wait()
}

func TestTheEnvironmentIsAnAllowList(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Secrets = map[string]string{"API_KEY": "weather-key"}
	s.add(sp)
	s.ready()
	var env []string
	if err := json.Unmarshal([]byte(s.says("act.env", `{}`)), &env); err != nil {
		t.Fatal(err)
	}
	slices.Sort(env)
	want := []string{"API_KEY=the value of weather-key", "HOME=" + filepath.Join(s.dir, "act"), "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"}
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "GOCOVERDIR=") })
	if !slices.Equal(env, want) {
		t.Errorf("%q, want %q", env, want)
	}
	s.bare.mu.Lock()
	defer s.bare.mu.Unlock()
	if p := s.bare.last.Profile; p.Name != "tool" || !slices.Contains(p.Write, filepath.Join(s.dir, "act")) || !slices.Contains(p.Read, sp.Command[0]) {
		t.Errorf("its walls: %+v", p)
	}
}

func TestASecretThatIsNotThereKeepsTheProcessFromStarting(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick(), func(d *Deps) {
		d.Secret = func(_ context.Context, name string) (string, error) {
			return "", fault.New(fault.NotFound, "no secret %q", name).WithHint("ombud secret set %s", name)
		}
	})
	sp := spec("good")
	sp.Secrets = map[string]string{"API_KEY": "gone"}
	s.add(sp)
	s.failing(`secret gone: no secret "gone"`)
	if started, _, _ := s.bare.counts(); started != 0 {
		t.Error("it was started without")
	}
}

// TestToolsAreKnownFromTheirRowsAfterARestart and a call waits for the process; what
// it registers then counts, is audited, and makes approvals void.
func TestToolsAreKnownFromTheirRowsAfterARestart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := setup(t, d, quick())
		says := filepath.Join(t.TempDir(), "tools.json")
		write := func(list ...any) {
			raw, err := json.Marshal(tools(list...))
			if err == nil {
				err = os.WriteFile(says, raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(named("echo"), named("pid"))
		s.add(spec("file", says))
		s.ready()
		digest := s.tools.Digest("act.echo")
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.call(t.Context(), "act.echo", `{}`); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a call after the stop: %v", err)
		}

		s.boot(quick())
		if s.tools.Digest("act.echo") != digest || len(s.tools.List()) != 2 {
			t.Errorf("not known before it is started: %v", s.tools.List())
		}
		if got := s.says("act.echo", `{}`); got == "" { // at once: it waits
			t.Error(got)
		}
		if got := s.entries(KindChanged); len(got) != 0 {
			t.Errorf("the same tools are no change: %v", got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}

		changed := named("echo")
		changed["description"] = "does something else"
		write(changed, named("env"))
		s.boot(quick())
		s.ready()
		if s.tools.Digest("act.echo") == digest {
			t.Error("the digest of a changed tool stays")
		}
		if got := s.entries(KindChanged); len(got) != 1 || got[0] != "ok: new: env; changed: echo; gone: pid" {
			t.Errorf("audited: %v", got)
		}
		if i := s.List()[0]; i.Changed == 0 {
			t.Errorf("%+v", i)
		}
		_, err := s.invoker.Call(t.Context(), "act.echo", tool.Invocation{Input: json.RawMessage(`{}`), Digest: digest})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("a call that was decided before the change: %v", err)
		}
		if _, err := s.tools.Get("act.pid"); !fault.Is(err, fault.NotFound) {
			t.Errorf("a tool that is gone: %v", err)
		}
	})
}

func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := setup(t, d, quick())
		own := tool.Definition{
			Name: "clock.now", Description: "d", Input: json.RawMessage(`{"type":"object"}`), Kind: tool.Local, Timeout: time.Second, MaxOutput: 1,
			Source: label.Own, Scopes: func(json.RawMessage) ([]scope.Scope, error) { return nil, nil }, Summary: func(json.RawMessage) string { return "" },
		}
		if err := s.tools.Add(own, func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{}, nil }); err != nil {
			t.Fatal(err)
		}
		sp := spec("good")
		sp.Name = "clock"
		if _, err := s.Add(t.Context(), sp, "operator"); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "clock.now") {
			t.Errorf("the name of a tool of ours: %v", err)
		}
		sp = spec("good")
		sp.Command[0] = "/no/such/program"
		if _, err := s.Add(t.Context(), sp, "operator"); !fault.Is(err, fault.NotFound) {
			t.Errorf("no program: %v", err)
		}
		for range 3 {
			s.add(spec("good"))
			s.ready()
			if _, err := s.Add(t.Context(), spec("good"), "operator"); !fault.Is(err, fault.Conflict) {
				t.Errorf("twice: %v", err)
			}
			if err := s.Remove(t.Context(), "act", "operator"); err != nil {
				t.Fatal(err)
			}
			if _, live, _ := s.bare.counts(); len(s.List()) != 0 || len(s.tools.List()) != 1 || live != 0 {
				t.Errorf("something is left: %+v, %v, %d children", s.List(), s.tools.List(), live)
			}
		}
		if err := s.Remove(t.Context(), "act", "operator"); !fault.Is(err, fault.NotFound) {
			t.Errorf("removed twice: %v", err)
		}
		s.add(spec("schemas"))
		s.ready()
		if err := s.Remove(t.Context(), "act", "operator"); err != nil || len(s.tools.Quarantined()) > 0 {
			t.Errorf("%v; the quarantine of what is gone: %v", err, s.tools.Quarantined())
		}
	})
}

func TestNoticesNeedAScopeAndAreAuditedIfNot(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("notices"))
	s.ready()
	s.says("act.echo", `{}`)
	if got := s.entries(KindRefused); len(got) != 1 || !strings.Contains(got[0], "refused: a notice without a scope for it: notify.send:operator") {
		t.Errorf("audited: %v", got)
	}
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	sp := spec("good")
	sp.Scopes = append(sp.Scopes, Bound{Scope: scope.Must("notify.send:operator")})
	s.add(sp)
	s.ready()
	for range 2 * noticeBurst {
		s.says("act.notify", `{"Target":"operator"}`)
	}
	s.says("act.notify", `{"Target":"ana@example.org"}`)
	s.says("act.echo", `{}`) // all before it has been read
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notices) != noticeBurst || s.notices[0] != (Notice{Process: "act", Message: "look"}) {
		t.Errorf("passed on: %+v", s.notices)
	}
	got := strings.Join(s.entries(KindRefused), "\n")
	if !strings.Contains(got, "more notices than are sent on") || !strings.Contains(got, "a notice to ana@example.org") || strings.Count(got, "\n") != 2 {
		t.Errorf("audited: %s", got)
	}
}

func TestTestStartsAProcessThatWaits(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Backoff = []time.Duration{time.Hour}
	s := setup(t, dbtest.SQLite(t), cfg)
	gate := filepath.Join(t.TempDir(), "tools.json")
	s.add(spec("file", gate)) // which is not there yet
	i := s.until("waiting", func(i Info) bool { return i.State == Waiting })
	if i.Next == 0 || !strings.Contains(i.Error, "exit code 2") {
		t.Errorf("%+v", i)
	}
	if _, err := s.Test(t.Context(), "act"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "exit code 2") {
		t.Errorf("not ready: %v", err)
	}
	raw, err := json.Marshal(tools(named("echo")))
	if err == nil {
		err = os.WriteFile(gate, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Test(t.Context(), "act")
	if err != nil || got.State != Ready || len(got.Tools) != 1 || got.Says != "actor" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Test(t.Context(), "none"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// Nothing of a restored instance acts before it is let go.
func TestAHeldInstanceStartsNoProcess(t *testing.T) {
	t.Parallel()
	var free atomic.Bool
	s := setup(t, dbtest.SQLite(t), quick(), func(d *Deps) { d.Hold = func() bool { return !free.Load() } })
	s.add(spec("good"))
	s.until("held", func(i Info) bool { return i.State == Held })
	if _, err := s.Test(t.Context(), "act"); !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "restore release") {
		t.Errorf("%v", err)
	}
	if started, _, _ := s.bare.counts(); started != 0 {
		t.Error("it was started")
	}
	free.Store(true)
	s.ready()
}

// A call does not wait for a process that is far from being started again.
func TestACallOfAProcessInALoopIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Backoff, cfg.ReadyWait = []time.Duration{time.Hour}, time.Minute
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("good"))
	s.ready()
	s.says("act.exit-after", `{}`)
	s.until("waiting", func(i Info) bool { return i.State == Waiting })
	_, err := s.call(t.Context(), "act.echo", `{}`)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "ombud tools test act") {
		t.Errorf("%v", err)
	}
}

func TestStartAndStopUnderLoad(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	for i := range 3 {
		sp := spec("good")
		sp.Name = fmt.Sprint("act", i)
		sp.Scopes = []Bound{{Scope: scope.Must("tool:act.*")}}
		s.add(sp)
	}
	for range 3 {
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		for i := range 12 {
			wg.Go(func() {
				name := fmt.Sprint("act", i%3)
				_, _ = s.call(ctx, name+".echo", `{}`)
				_, _ = s.call(ctx, name+".die", `{}`)
				s.List()
			})
		}
		wg.Go(func() {
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		cancel()
		if _, live, _ := s.bare.counts(); live != 0 {
			t.Errorf("%d children are left", live)
		}
		s.boot(quick())
	}
}
