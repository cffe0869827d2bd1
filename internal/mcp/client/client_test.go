//go:build linux

package client

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestAServerIsAcceptedAndItsToolsAreCalled(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		s := setup(t, d, quick())
		s.add(spec("good"))
		info := s.ready()
		if got := s.tool(info, "echo"); got.State != StateNew || len(s.tools.List()) != 0 {
			t.Errorf("before it is accepted: %+v, %d tools", got, len(s.tools.List()))
		}
		diffs, seen, err := s.Diff("act")
		if err != nil || len(diffs) != len(actions) || !strings.Contains(diffs[0].Text, "--- nothing\n+++ offered\n@@ -0,0 +1,8 @@\n+name:\n+  ask\n+description:\n+  does ask\n") {
			t.Errorf("the difference: %v, %d, %s", err, len(diffs), diffs[0].Text)
		}
		if _, err := s.Accept(t.Context(), "act", "another", "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("what was not seen: %v", err)
		}
		if info, err = s.Accept(t.Context(), "act", seen, "operator"); err != nil {
			t.Fatal(err)
		}
		if info.Says != "actor⟦U+202E⟧ 1" || info.Protocol != "2025-11-25" {
			t.Errorf("it calls itself %q and speaks %s", info.Says, info.Protocol)
		}
		if got := s.says("mcp.act.echo", `{"a":1}`); got != `echo {"a":1}` {
			t.Error(got)
		}
		odd := s.tool(info, "odd name!")
		if !strings.HasPrefix(odd.Name, "mcp.act.odd_name__") || s.says(odd.Name, `{}`) != "echo {}" {
			t.Errorf("an odd name: %+v", odd)
		}
		def, err := s.tools.Get("mcp.act.echo")
		if err != nil {
			t.Fatal(err)
		}
		scopes, err := def.Scopes(nil)
		if err != nil || scopes[0].String() != "mcp.call:act/echo" || def.ReadOnly || def.Repeat != tool.AtMostOnce || !def.Irreversible ||
			def.Destination != nil || def.Source != label.Untrusted("mcp:act") {
			t.Errorf("%+v, %v, %v", def, scopes, err)
		}
		// Another daemon knows them before the server is there.
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.held.Store(true)
		s.boot(quick())
		if _, err := s.tools.Get("mcp.act.echo"); err != nil {
			t.Error(err)
		}
		_, err = s.call(t.Context(), "mcp.act.echo", `{}`)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "held") {
			t.Errorf("held: %v", err)
		}
		s.held.Store(false)
		s.ready()
		if got := s.says("mcp.act.echo", `{"a":2}`); got != `echo {"a":2}` {
			t.Error(got)
		}
		if err := s.Remove(t.Context(), "act", "operator"); err != nil {
			t.Fatal(err)
		}
		if len(s.tools.List()) != 0 || len(s.List()) != 0 || len(s.entries(KindAdded)) != 1 || len(s.entries(KindRemoved)) != 1 || len(s.entries(KindAccepted)) != 1 {
			t.Error("it was not forgotten, or not recorded")
		}
	})
}

func TestWhatATextOfAServerComesTo(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Env = map[string]string{"PLAIN": "x y", "PATH": "/bin"}
	s.with(sp)
	if got := s.says("mcp.act.structured", `{}`); got != `{ "b": 1, "a": "x" }` {
		t.Errorf("what is said twice: %q", got)
	}
	out, err := s.call(t.Context(), "mcp.act.picture", `{}`)
	want := "look:\n[image image/png, 4 bytes, kept as blob_1]\n[audio audio/wav, 3 bytes, kept as blob_2]\n[a link: file:///x x]\n[resource file:///y]\nwhy"
	if err != nil || out.Text != want || len(out.Kept) != 2 || string(s.kept[0]) != "\x89PNG" {
		t.Errorf("a picture: %v\n%q\n%q\n%q", err, out.Text, want, s.kept)
	}
	for name, want := range map[string]struct {
		class fault.Class
		text  string
	}{
		"fail":   {fault.Unavailable, "act says: no such␀ thing"},
		"refuse": {fault.Invalid, "act says: bad⟦U+202E⟧ arguments (-32602)"},
		"wrong":  {fault.Unknown, "its outcome is unknown"},
		"more":   {fault.Denied, "asks for something before it answers"},
	} {
		_, err := s.call(t.Context(), "mcp.act."+name, `{}`)
		if !fault.Is(err, want.class) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %s: %v", name, fault.ClassOf(err), err)
		}
	}
	if got := s.says("mcp.act.env", `{}`); !strings.Contains(got, "PLAIN=x y") || !strings.Contains(got, "PATH=/bin") || strings.Contains(got, "USER=") {
		t.Errorf("its environment: %s", got)
	}
	if got := s.says("mcp.act.flood", `{}`); got != "after the flood" {
		t.Error(got)
	}
	if got := s.says("mcp.act.big", `{}`); len(got) != 5_000_000 {
		t.Errorf("a line of 5 MB: %d bytes", len(got))
	}
}

func TestAHundredMegabytesAreSurvived(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Reads = []string{"noise"}
	s.with(sp)
	pid := s.says("mcp.act.pid", `{}`)
	_, err := s.call(t.Context(), "mcp.act.huge", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "more than 16777216 bytes") {
		t.Errorf("one line: %v", err)
	}
	if got := s.says("mcp.act.noise", `{}`); got != "after the noise" {
		t.Error(got)
	}
	if s.ready().Noise < 10_000_000 || s.says("mcp.act.pid", `{}`) != pid {
		t.Errorf("noise %d, or another child", s.ready().Noise)
	}
}

func TestOneBadSchemaTakesNoOtherToolWithIt(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	info := s.with(spec("schemas"))
	refused := map[string]string{}
	good := 0
	for _, x := range info.Tools {
		switch x.State {
		case StateRefused:
			refused[x.Tool] += x.Reason
		case StateOffered:
			good++
		}
	}
	for name, want := range map[string]string{
		"string": "type string", "dollar": `"$.xgafv"`, "allof": "type string", "items": "array without items", "anyof": "type string",
		"noschema": "", "echo": "offered twice", "wide": "bytes", "typed": "cannot be read", "#8": "cannot be read",
	} {
		if why, there := refused[name]; !there || !strings.Contains(why, want) {
			t.Errorf("%s: %q, want %q", name, why, want)
		}
	}
	if good != 1 || s.says("mcp.act.echo", `{}`) != "echo {}" || len(s.tools.Quarantined()) != len(refused) {
		t.Errorf("%d good, quarantined %v", good, s.tools.Quarantined())
	}
}

func TestManyToolsAndEndlessLists(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	if info := s.with(spec("many")); !info.Cut || len(s.tools.List()) != maxTools {
		t.Errorf("cut %v, %d tools", info.Cut, len(s.tools.List()))
	}
	e := setup(t, dbtest.SQLite(t), quick())
	e.add(spec("endless"))
	if info := e.ready(); !info.Cut || len(info.Tools) != maxPages {
		t.Errorf("cut %v, %d tools", info.Cut, len(info.Tools))
	}
}

func TestNoiseIsPassedOver(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(spec("noisy"))
	if got := s.says("mcp.act.echo", `{}`); got != "echo {}" || s.ready().Noise != 3 {
		t.Errorf("%q, noise %d", got, s.ready().Noise)
	}
}

func TestServersThatDieAtEachPhase(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"die-at-start": "exit code 3; the last it said: I die at once, with •••", "die-at-initialize": "exit code 4", "die-at-list": "exit code 5",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := setup(t, dbtest.SQLite(t), quick())
			s.add(spec(mode))
			s.failing(want)
			s.until("tried again and again", func(i Info) bool { return i.Loops })
			if s.most.Load() != 1 {
				t.Errorf("%d children at a time", s.most.Load())
			}
			if _, err := s.Test(t.Context(), "act"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a test says %v", err)
			}
		})
	}
}

func TestACallThatIsInterruptedByDeathIsUnknown(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Repeatable = []string{"linger"}
	s.with(sp)
	_, err := s.call(t.Context(), "mcp.act.die", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "exit code 7; the last it said: about to die") {
		t.Errorf("it died: %v", err)
	}
	if got := s.says("mcp.act.echo", `{}`); got != "echo {}" { // the next child
		t.Error(got)
	}
	ended := make(chan error, 2)
	for _, name := range []string{"mcp.act.slow", "mcp.act.linger"} {
		go func() {
			_, err := s.call(context.Background(), name, `{}`)
			ended <- err
		}()
	}
	s.until("asked", func(Info) bool { return s.underWay() == 2 })
	s.says("mcp.act.echo", `{}`) // they were read before this
	if _, err := s.call(t.Context(), "mcp.act.die", `{}`); !fault.Is(err, fault.Unknown) {
		t.Errorf("%v", err)
	}
	classes := []fault.Class{fault.ClassOf(<-ended), fault.ClassOf(<-ended)}
	if classes[0] == classes[1] || classes[0] != fault.Unknown && classes[1] != fault.Unknown || classes[0] != fault.Unavailable && classes[1] != fault.Unavailable {
		t.Errorf("two calls under way, one repeatable: %v", classes)
	}
}

// underWay is how many calls hold a slot.
func (s *stand) underWay() int {
	x, err := s.get("act")
	if err != nil {
		return 0
	}
	return len(x.slots)
}

func TestACancelledCallIsToldAndADeafServerEnded(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(spec("good"))
	for n := range deaf {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.call(ctx, "mcp.act.slow", `{}`)
		cancel()
		if !fault.Is(err, fault.Unknown) {
			t.Errorf("call %d: %v", n, err)
		}
	}
	s.until("ended", func(i Info) bool { return strings.Contains(i.Error, "answered none of 3 calls") })
	lines, err := s.Logs("act", 10)
	if err != nil || len(lines) == 0 || !strings.HasPrefix(lines[0].Text, "cancelled") {
		t.Errorf("it was told %v, %v", lines, err)
	}
}

func TestAServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Handshake, cfg.Backoff = 15*time.Millisecond, []time.Duration{time.Microsecond}
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("silent"))
	s.failing("did not get ready within 15ms")
	s.until("tried 10 times", func(i Info) bool { return i.Failures >= 10 })
	before := descriptors(t)
	for n := 20; n <= reconnects; n += 20 {
		s.until("tried again and again", func(i Info) bool { return i.Failures >= n })
	}
	if after := descriptors(t); after > before+reconnects/2 { // other tests have some of them
		t.Errorf("%d descriptors, then %d", before, after)
	}
	if s.most.Load() != 1 {
		t.Errorf("%d children at a time", s.most.Load())
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestAServerThatKnowsNoDiscoverIsAskedAsBefore(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Quiet = 20 * time.Millisecond
	s := setup(t, dbtest.SQLite(t), cfg)
	s.with(spec("no-discover"))
	if got := s.says("mcp.act.echo", `{}`); got != "echo {}" || s.starts.Load() != 1 {
		t.Errorf("%q after %d starts", got, s.starts.Load())
	}
}

func TestTheNewestProtocolIsSpoken(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	info := s.with(spec("sdk"))
	if info.Protocol != "2026-07-28" {
		t.Errorf("it speaks %s", info.Protocol)
	}
	if got := s.says("mcp.act.say", `{"text":"hello"}`); got != "said hello" {
		t.Error(got)
	}
}

func TestWhatAServerAsksIsRefused(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(spec("asks"))
	s.says("mcp.act.echo", `{}`)
	s.until("answered", func(Info) bool {
		lines, err := s.Logs("act", 50)
		text := ""
		for _, l := range lines {
			text += l.Text + "\n"
		}
		return err == nil && strings.Contains(text, `answered "s1"`) && strings.Contains(text, `answered "s2"`)
	})
}

func TestChildrenOfAServerGoWithIt(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.StopGrace = 50 * time.Millisecond
	for _, mode := range []string{"forks", "stubborn-end"} {
		s := setup(t, dbtest.SQLite(t), cfg)
		s.with(spec(mode))
		s.says("mcp.act.echo", `{}`)
		if err := s.Remove(t.Context(), "act", "operator"); err != nil {
			t.Error(err)
		}
		if s.live.Load() != 0 {
			t.Error("something is left")
		}
	}
}

func TestStandardErrorIsKeptInPart(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("stderr"))
	s.ready()
	lines, err := s.Logs("act", 1000)
	if err != nil || len(lines) != keptLines || len(lines[0].Text) > supervise.LineLength {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

func TestSwitchingOff(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(spec("good"))
	info, err := s.Enable(t.Context(), "act", false, "operator")
	if err != nil || info.State != Off || s.live.Load() != 0 || len(s.tools.List()) != 0 {
		t.Errorf("%v, %s, %d live", err, info.State, s.live.Load())
	}
	if _, err := s.Test(t.Context(), "act"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a test of what is off: %v", err)
	}
	if _, err := s.Enable(t.Context(), "act", true, "operator"); err != nil {
		t.Fatal(err)
	}
	if got := s.says("mcp.act.echo", `{}`); got != "echo {}" {
		t.Error(got)
	}
}

func TestResourcesAndPrompts(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.with(spec("resources"))
	for name, c := range map[string]struct{ input, want string }{
		"resources.list": {`{}`, `"uri":"file:///a"`},
		"resources.read": {`{"uri":"file:///a"}`, "the text\n[resource x/y file:///b, 3 bytes, kept as blob_1]"},
		"prompts.list":   {`{}`, `"name":"p"`},
		"prompts.get":    {`{"name":"p","arguments":{"a":"b"}}`, `[user]` + "\n" + `hello {"a":"b"}`},
	} {
		if got := s.says("mcp.act."+name, c.input); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAnEnvironmentHasSecretsByTheirNames(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Env = map[string]string{"KEY": "Bearer {{secret:a-key}}"}
	s.add(sp)
	s.failing("the variable KEY: no secrets")
	if s.starts.Load() != 0 {
		t.Error("it was started all the same")
	}
}

func TestAServerThatFloodsIsEnded(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(spec("floods"))
	s.failing("a flood: it asks 64 things at a time")
}

func TestAProgramEndsByTheEndOfItsInput(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.StopGrace = patience
	s := setup(t, dbtest.SQLite(t), cfg)
	s.with(spec("good"))
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines, err := s.Logs("act", 1); err != nil || len(lines) != 1 || lines[0].Text != "bye" {
		t.Errorf("its last word is %v, %v", lines, err)
	}
}

// secrets gives the stand real ones.
func (s *stand) secrets(list ...secret.Setting) {
	s.t.Helper()
	kept := secret.New(s.db, s.vault, s.log, s.audit, redact.New())
	for _, one := range list {
		if _, err := kept.Set(s.t.Context(), one, "operator"); err != nil {
			s.t.Fatal(err)
		}
	}
	s.secret = func(name string) (secret.Value, error) { return kept.Resolve(context.Background(), name) }
}

func TestASecretIsFilledInWhereItIsSent(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.secrets(secret.Setting{Name: "a-key", Value: []byte("open sesame")}, secret.Setting{Name: "bound", Value: []byte("for one host"), Hosts: []string{"example.com"}})
	sp := spec("good")
	sp.Env = map[string]string{"KEY": "Bearer {{secret:a-key}}"}
	s.with(sp)
	if got := s.says("mcp.act.env", `{}`); !strings.Contains(got, "KEY=Bearer open sesame") {
		t.Error(got)
	}
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	sp.Env["KEY"] = "{{secret:bound}}"
	s.add(sp)
	s.failing("secret bound is bound to hosts")
}
