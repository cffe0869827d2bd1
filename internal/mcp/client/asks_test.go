//go:build linux

package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// person answers questions, and remembers them.
type person struct {
	mu     sync.Mutex
	asked  []Asked
	now    atomic.Int32
	most   atomic.Int32
	answer func(ctx context.Context, q Asked) (Answer, error)
}

func (p *person) ask(ctx context.Context, q Asked) (Answer, error) {
	n := p.now.Add(1)
	defer p.now.Add(-1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	p.mu.Lock()
	p.asked = append(p.asked, q)
	answer := p.answer
	p.mu.Unlock()
	return answer(ctx, q)
}

func (p *person) says(a Answer) {
	p.does(func(context.Context, Asked) (Answer, error) { return a, nil })
}

func (p *person) does(f func(ctx context.Context, q Asked) (Answer, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = f
}

// heard are the questions since it was called last.
func (p *person) heard() []Asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.asked
	p.asked = nil
	return out
}

// waits answers nothing until its context ends.
func waits(ctx context.Context, _ Asked) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

// attended is a stand with a person.
func attended(t *testing.T, cfg Config) (*stand, *person) {
	t.Helper()
	p := &person{}
	p.says(Answer{Action: Accept, Content: []byte(`{"name":"Ada"}`)})
	return setup(t, dbtest.SQLite(t), cfg, func(s *stand) { s.ask = p.ask }), p
}

func expects(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

func TestAServerAsksAPerson(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("good"))
	expects(t, s.says("mcp.act.ask", `{}`), `"action":"accept"`, `"content":{"name":"Ada"}`)
	q := p.heard()
	if len(q) != 1 || q[0].Server != "act" || q[0].Tool != "ask" || q[0].Kind != AskForm || q[0].Number != 1 || q[0].Call.Run != "run_1" || q[0].Call.Step != "tool/0.0" {
		t.Fatalf("%+v", q)
	}
	expects(t, q[0].Message+string(q[0].Schema), "who are you?", `"required":["name"]`)
	p.says(Answer{Action: Decline, Why: "the operator said no"})
	expects(t, s.says("mcp.act.ask", `{}`), `"action":"decline"`, "[act: it asked for something and was answered decline: the operator said no]")
	p.says(Answer{Action: Cancel, Why: "nobody is there"})
	expects(t, s.says("mcp.act.ask", `{}`), `"action":"cancel"`, "nobody is there")
	p.does(func(context.Context, Asked) (Answer, error) { return Answer{}, errors.New("the store has a secret") })
	if got := s.says("mcp.act.ask", `{}`); strings.Contains(got, "secret") || !strings.Contains(got, "nobody can be asked now") {
		t.Error(got)
	}
	expects(t, s.says("mcp.act.can", `{}`), `"elicitation":{"form":{},"url":{}}`)
	if got := s.says("mcp.act.can", `{}`); strings.Contains(got, "sampling") || strings.Contains(got, `"roots":{"l`) {
		t.Errorf("it is told of %s", got)
	}
	p.heard()
	if got := s.says("mcp.act.ask-bad", `{}`); !strings.Contains(got, "-32602") || len(p.heard()) != 0 {
		t.Errorf("what no form can be: %s", got)
	}
}

func TestAServerWantsAnAddressOpened(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("good"))
	p.says(Answer{Action: Accept})
	expects(t, s.says("mcp.act.visit", `{}`), `{"action":"accept"}`)
	if q := p.heard(); len(q) != 1 || q[0].Kind != AskURL || q[0].URL != "https://example.com/login?x=1" || q[0].Before || q[0].Schema != nil {
		t.Errorf("%+v", q)
	}
	p.says(Answer{Action: Decline, Why: "the operator said no"})
	_, err := s.call(t.Context(), "mcp.act.visit-first", `{}`)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "the operator said no") {
		t.Errorf("declined: %v", err)
	}
	if q := p.heard(); len(q) != 1 || !q[0].Before {
		t.Errorf("%+v", q)
	}
	if got := s.says("mcp.act.visit-bad", `{}`); !strings.Contains(got, "only an address of http or https") || len(p.heard()) != 0 {
		t.Error(got)
	}
}

func TestACallIsMadeAgainWhenItsAddressWasOpened(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("good"))
	p.says(Answer{Action: Accept})
	if got := s.says("mcp.act.visit-first", `{}`); got != "as you are known now" {
		t.Error(got)
	}
}

func TestWhatIsNoAddressOfAPage(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "example.com", "ftp://example.com/", "file:///etc/passwd", "https://", "https:///x", "https://a:b@example.com/", "https://bank.example@evil.example/",
		"https://example.com/\u202egpj", "https://example.com/ x", "https://example.com\\@evil.example", "https://example.com/\n", "https://example.com/" + strings.Repeat("x", maxAddress),
	} {
		if checkAddress(bad) == nil {
			t.Errorf("%q is one", bad)
		}
	}
	for _, good := range []string{"https://example.com/login?x=1#top", "http://localhost:8080/", "https://xn--bcher-kva.example/"} {
		if err := checkAddress(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestAServerAsksAModelIfTheOperatorSaidSo(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	sp := spec("good")
	sp.Sampling, sp.NoElicitation = true, true
	s.with(sp)
	p.says(Answer{Action: Accept, Text: "42", Model: "a-model", Stop: "endTurn"})
	expects(t, s.says("mcp.act.sample", `{}`), `"text":"42"`, `"model":"a-model"`, `"role":"assistant"`, `"stopReason":"endTurn"`)
	q := p.heard()
	if len(q) != 1 || q[0].Kind != AskSample || q[0].Sample.System != "be short" || q[0].Sample.MaxTokens != maxSampled || len(q[0].Sample.Messages) != 1 || q[0].Sample.Messages[0] != (Saying{"user", "what is 6 times 7?"}) {
		t.Errorf("%+v", q)
	}
	if got := s.says("mcp.act.can", `{}`); !strings.Contains(got, `"sampling":{}`) || strings.Contains(got, "elicitation") {
		t.Errorf("it is told of %s", got)
	}
	if got := s.says("mcp.act.sample-image", `{}`); !strings.Contains(got, "in text only") || len(p.heard()) != 0 {
		t.Errorf("an image: %s", got)
	}
	if got := s.says("mcp.act.ask", `{}`); !strings.Contains(got, "does not support elicitation") || len(p.heard()) != 0 {
		t.Errorf("what was not declared: %s", got)
	}
	p.says(Answer{Action: Decline, Why: "nothing grants it"})
	expects(t, s.says("mcp.act.sample", `{}`), `"code":-1`, "[act: it asked for something and was answered decline: nothing grants it]")
}

// TestWhoseQuestionItIsHasToBeKnown: with two calls under way nobody can tell, and from
// then on there is one at a time.
func TestWhoseQuestionItIsHasToBeKnown(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("good"))
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, "mcp.act.slow", `{}`)
		slow <- err
	}()
	s.talking(1)
	expects(t, s.says("mcp.act.ask", `{}`), "several calls are under way")
	if len(p.heard()) != 0 {
		t.Error("somebody was asked all the same")
	}
	cancel()
	if err := <-slow; !fault.Is(err, fault.Unknown) {
		t.Error(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			out, err := s.call(t.Context(), "mcp.act.ask", `{}`)
			if err != nil || !strings.Contains(out.Text, "Ada") {
				t.Errorf("%q, %v", out.Text, err)
			}
		})
	}
	all.Wait()
	if len(p.heard()) != 4 || p.most.Load() != 1 {
		t.Errorf("%d at a time", p.most.Load())
	}
}

// talking waits until so many calls of the server are under way.
func (s *stand) talking(n int) {
	s.t.Helper()
	for range int(patience / (5 * time.Millisecond)) {
		x, err := s.get("act")
		if err != nil {
			s.t.Fatal(err)
		}
		x.mu.Lock()
		v := x.life
		x.mu.Unlock()
		v.mu.Lock()
		now := len(v.talks)
		v.mu.Unlock()
		if now == n {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-s.t.Context().Done():
		}
	}
	s.t.Fatalf("never %d calls", n)
}

func TestAQuestionOutsideACallIsRefused(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	sp := spec("asks")
	sp.Sampling = true
	s.with(sp)
	s.says("mcp.act.echo", `{}`)
	if q := p.heard(); len(q) != 0 {
		t.Errorf("%+v", q)
	}
}

func TestACallAsksOneThingAtATimeAndNotForEver(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("good"))
	if got := s.says("mcp.act.ask-often", `{}`); strings.Count(got, "it asked more than 8 times") != 1 {
		t.Error(got)
	}
	if q := p.heard(); len(q) != maxQuestions || p.most.Load() != 1 {
		t.Errorf("%d questions, %d at a time", len(q), p.most.Load())
	}
	s.says("mcp.act.ask", `{}`) // the next call may ask again
}

func TestWhoGetsAPromptIsToldWhatWasNotAnswered(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("resources"))
	p.says(Answer{Action: Decline, Why: "the operator said no"})
	expects(t, s.says("mcp.act.prompts.get", `{"name":"p","arguments":{"a":"ask"}}`), `"action":"decline"`, "answered decline: the operator said no]")
}

func TestNobodyIsAskedForEver(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Ask = 50 * time.Millisecond
	s, p := attended(t, cfg)
	s.with(spec("good"))
	p.does(waits)
	expects(t, s.says("mcp.act.ask", `{}`), `"action":"cancel"`, "nobody answered in time")
}

func TestAQuestionEndsWithWhatItIsFor(t *testing.T) {
	t.Parallel()
	s, p := attended(t, quick())
	s.with(spec("good"))
	asked := make(chan struct{}, 8)
	p.does(func(ctx context.Context, q Asked) (Answer, error) {
		asked <- struct{}{}
		return waits(ctx, q)
	})
	// The call is given up.
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, "mcp.act.ask", `{}`)
		result <- err
	}()
	<-asked
	cancel()
	if err := <-result; !fault.Is(err, fault.Unknown) {
		t.Errorf("a call that was given up: %v", err)
	}
	// The server takes it back.
	if got := s.says("mcp.act.ask-back", `{}`); !strings.Contains(got, "ancel") {
		t.Error(got)
	}
	// The server dies.
	p.does(func(ctx context.Context, q Asked) (Answer, error) {
		if err := os.WriteFile(filepath.Join(s.dir, "act", "asked"), nil, 0o600); err != nil {
			t.Error(err)
		}
		return waits(ctx, q)
	})
	if _, err := s.call(t.Context(), "mcp.act.ask-die", `{}`); !fault.Is(err, fault.Unknown) {
		t.Errorf("a server that died: %v", err)
	}
	s.until("up again", func(i Info) bool { return i.State == Ready && i.PID != 0 })
	if n := p.now.Load(); n != 0 {
		t.Errorf("%d questions are still put", n)
	}
}

func TestWithoutAnybodyToAskNothingIsDeclared(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Sampling = true
	s.with(sp)
	if got := s.says("mcp.act.can", `{}`); strings.Contains(got, "elicitation") || strings.Contains(got, "sampling") {
		t.Error(got)
	}
	if def, err := s.tools.Get("mcp.act.ask"); err != nil || def.Asks != 0 {
		t.Errorf("it may ask for %v: %v", def.Asks, err)
	}
}

// TestAServerAsksByItsResult: as the newest revision does, and by the library in its place
// over the older ones.
func TestAServerAsksByItsResult(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"stdio", "http", "http, older"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			sp := spec("sdk")
			if where != "stdio" { // before the stand, which closes its session when it ends
				sp = far(newRemote(t, false))
			}
			if where == "http" {
				sp.URL = strings.TrimSuffix(sp.URL, "/mcp") + "/newest"
			}
			sp.Sampling = true
			s, p := attended(t, quick())
			info := s.with(sp)
			if want := map[bool]string{true: legacy, false: "2026-07-28"}[where == "http, older"]; info.Protocol != want {
				t.Fatalf("the revision is %s", info.Protocol)
			}
			p.does(func(_ context.Context, q Asked) (Answer, error) {
				switch {
				case q.Kind == AskSample:
					return Answer{Action: Accept, Text: "hm!", Model: "m", Stop: "endTurn"}, nil
				case strings.Contains(q.Message, "tall"):
					return Answer{Action: Decline, Why: "the operator said no"}, nil
				}
				return Answer{Action: Accept, Content: []byte(`{"name":"Ada"}`)}, nil
			})
			expects(t, s.says("mcp.act.greet", `{}`), "got s1", `"a":{"action":"accept","content":{"name":"Ada"}}`, `"b":{"action":"decline"}`, "the operator said no")
			if q := p.heard(); len(q) != 2 || p.most.Load() != 1 {
				t.Errorf("%d questions, %d at a time", len(q), p.most.Load())
			}
			expects(t, s.says("mcp.act.think", `{}`), "hm!")
			p.does(func(context.Context, Asked) (Answer, error) { return Answer{Action: Decline, Why: "not granted"}, nil })
			if _, err := s.call(t.Context(), "mcp.act.think", `{}`); err == nil || where != "http, older" && (!fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "not granted")) {
				t.Errorf("a model that is refused: %v", err)
			}
			if where != "http, older" {
				expects(t, s.says("mcp.act.busy", `{}`), "got s1")
				if _, err := s.call(t.Context(), "mcp.act.roots", `{}`); !fault.Is(err, fault.Denied) {
					t.Errorf("roots: %v", err)
				}
			}
		})
	}
}
