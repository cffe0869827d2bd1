package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestACallThatIsAllowedIsMadeOnceAndProved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add(define("t.send"), text("sent"))
		reads := define("t.read")
		reads.ReadOnly, reads.Repeat = true, tool.Repeatable
		b.add(reads, text("read"))
		calls := []planned{to("tool/1", "t_send", `{ "as":"free" , "n":1}`), to("tool/2", "t.read", `{"as":"free"}`)}
		id := b.start(calls...)
		got := b.end(id, calls...)
		expect(t, got[0], OK, "sent")
		expect(t, got[1], OK, "read")
		if got[0].Tool != "t.send" || got[0].Decision != "allow" || got[0].Scopes[0] != "tool:free" || !strings.Contains(got[0].Summary, `"n":1`) {
			t.Errorf("result %+v", got[0])
		}
		if s := b.step(id, "tool/1"); s.State != run.Done || s.Audit.Seq == 0 || s.Opened == 0 || s.Policy != run.AtMostOnce {
			t.Errorf("step %+v", s)
		}
		if s := b.step(id, "tool/2"); s.State != run.Done || s.Audit.Seq == 0 || s.Opened != 0 {
			t.Errorf("a lazy step %+v", s)
		}
		if begun, done := b.entries("call.begun"), b.entries("call"); len(begun) != 1 || len(done) != 2 || done[0].Outcome != "ok" || done[0].Run != id {
			t.Errorf("audit: begun %v, done %v", begun, done)
		}
		if b.events("tool.called") != 1 || b.events("tool.result") != 2 {
			t.Errorf("events: %d called, %d results", b.events("tool.called"), b.events("tool.result"))
		}
	})
}

func TestEveryRefusalSaysWhyAndIsAudited(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add(define("t.send"), text("sent"))
		b.add(define("t.send_all"), text("sent"))
		calls := []planned{
			to("1", "t.sned", `{"as":"free"}`),
			to("2", "t.send", `{"n":"x","more":true}`),
			to("3", "t.send", `{"as":"free"`),
			to("4", "t.send", `{"as":"free"}{}`),
			to("5", "t.send", `{"as":"other"}`),
			to("6", "t.send", `{"as":"a b c:"}`),
			to("7", "t.send", ``),
			to("8", strings.Repeat("x", 100000), `{}`),
		}
		id := b.start(calls...)
		got := b.end(id, calls...)
		expect(t, got[0], Refused, "t.sned", "t.send")
		expect(t, got[1], Refused, "/n", "more", "as")
		expect(t, got[2], Refused)
		expect(t, got[3], Refused)
		expect(t, got[4], Refused, "not allowed")
		expect(t, got[6], Refused)
		expect(t, got[7], Refused)
		classes := []fault.Class{fault.NotFound, fault.Invalid, fault.Invalid, fault.Invalid, fault.Denied}
		for i, c := range classes {
			if got[i].Class != c {
				t.Errorf("call %d: class %s, want %s", i+1, got[i].Class, c)
			}
		}
		for _, c := range calls {
			s := b.step(id, c.Step)
			if s.State != run.Errored || s.Audit.Seq == 0 || len(s.Result) == 0 {
				t.Errorf("step %s: %s, audit %d, result %s", c.Step, s.State, s.Audit.Seq, s.Result)
			}
		}
		if n := len(b.entries("call.refused")); n != len(calls) || b.called("t.send") != 0 {
			t.Errorf("%d entries, %d calls made", n, b.called("t.send"))
		}
		if len(got[7].Text) > MaxText {
			t.Errorf("a refusal of %d bytes", len(got[7].Text))
		}
	})
}

func TestAnApprovedCallIsMadeExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []tool.Kind{tool.Effect, tool.Local} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				b := setup(t, d)
				def := define("t.send")
				def.Kind = kind
				b.add(def, text("sent"))
				c := to("tool/1", "t.send", `{"as":"ask"}`)
				id := b.start(c)
				a := b.asked(id)
				if a.Tool != "t.send" || a.Subject != "agent:test" || !strings.HasPrefix(a.Summary, "t.send") || b.called("t.send") != 0 {
					t.Errorf("asked %+v", a)
				}
				b.halt() // a wait survives the daemon
				b.boot()
				b.decide(a, approval.Approve)
				got := b.end(id, c)
				expect(t, got[0], OK, "sent")
				if got[0].Approval != a.ID || b.called("t.send") != 1 {
					t.Errorf("approval %q, called %d times", got[0].Approval, b.called("t.send"))
				}
				if now, err := b.approvals.Get(t.Context(), a.ID); err != nil || now.State != approval.Used {
					t.Errorf("approval is %s: %v", now.State, err)
				}
			})
		})
	}
}

func TestADeniedCallStaysRefusedInItsRun(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add(define("t.send"), text("sent"))
		calls := []planned{to("tool/1", "t.send", `{"as":"ask"}`), to("tool/2", "t.send", `{ "as":"ask" }`), to("tool/3", "t.send", `{"as":"ask","n":2}`)}
		id := b.start(calls...)
		first := b.asked(id)
		b.decide(first, approval.Deny)
		other := b.asked(id) // the second is refused unasked; this is another call
		if other.Step != "tool/3" {
			t.Errorf("asked again for %s", other.Step)
		}
		b.decide(other, approval.Deny)
		got := b.end(id, calls...)
		expect(t, got[0], Refused, "operator refused", "said so")
		expect(t, got[1], Refused, "refused this call before")
		expect(t, got[2], Refused)
		if b.called("t.send") != 0 || len(b.entries("call.refused")) != 3 {
			t.Errorf("called %d times, %d entries", b.called("t.send"), len(b.entries("call.refused")))
		}
	})
}

func TestAQuestionThatExpiresIsARefusal(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Expires = 50 * time.Millisecond })
	b.add(define("t.send"), text("sent"))
	c := to("tool/1", "t.send", `{"as":"ask"}`)
	id := b.start(c)
	b.asked(id)
	for {
		if n, err := b.approvals.ExpireOnce(t.Context()); err != nil || n > 0 {
			break
		}
		tick(t)
	}
	expect(t, b.end(id, c)[0], Refused, "expired")
	if b.called("t.send") != 0 {
		t.Error("it was made")
	}
}

func TestACallNobodyDecidesIsParkedAndMadeLaterByItsApproval(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, func(o *approval.Options) { o.Hold = 50 * time.Millisecond })
		b.add(define("t.send"), text("sent"))
		c := to("tool/1", "t.send", `{"as":"ask"}`)
		id := b.start(c)
		got := b.end(id, c)
		expect(t, got[0], Parked, "not done")
		a, err := b.approvals.Get(t.Context(), got[0].Approval)
		if err != nil || !a.Detached || a.State != approval.Pending {
			t.Fatalf("approval %+v: %v", a, err)
		}
		b.decide(a, approval.Approve)
		refused := func(why string, c planned) {
			t.Helper()
			p := b.startWith(program{Calls: []planned{c}, Approved: a.ID})
			expect(t, b.end(p, c)[0], Refused, "changed")
			if b.called("t.send") != 0 {
				t.Errorf("%s: it was made", why)
			}
		}
		refused("another input", to("call", "t.send", `{"as":"ask","n":5}`))
		exact := to("call", "t.send", `{"as":"ask"}`)
		made := b.startWith(program{Calls: []planned{exact}, Approved: a.ID})
		expect(t, b.end(made, exact)[0], OK, "sent")
		again := b.startWith(program{Calls: []planned{exact}, Approved: a.ID})
		expect(t, b.end(again, exact)[0], Refused, "used before")
		if b.called("t.send") != 1 {
			t.Errorf("made %d times", b.called("t.send"))
		}
	})
}

func TestAChangedToolNeedsAnotherApproval(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Hold = 50 * time.Millisecond })
	b.add(define("t.send"), text("sent"))
	c := to("tool/1", "t.send", `{"as":"ask"}`)
	a, err := b.approvals.Get(t.Context(), b.do(c)[0].Approval)
	if err != nil {
		t.Fatal(err)
	}
	b.decide(a, approval.Approve)
	b.newTools()
	def := define("t.send")
	def.Description = "for tests, and it deletes everything"
	b.add(def, text("deleted"))
	exact := to("call", "t.send", `{"as":"ask"}`)
	p := b.startWith(program{Calls: []planned{exact}, Approved: a.ID})
	expect(t, b.end(p, exact)[0], Refused, "changed since it was approved")
	if b.called("t.send") != 0 {
		t.Error("it was made")
	}
}

func TestAnUnknownOutcomeIsNotRepeatedUnasked(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		n := 0
		b.add(define("t.send"), func(context.Context, tool.Invocation) (tool.Output, error) {
			if n++; n == 1 {
				return tool.Output{}, fault.New(fault.Unknown, "the connection was lost")
			}
			return tool.Output{Text: "sent"}, nil
		})
		calls := []planned{to("tool/1", "t.send", `{"as":"free"}`), to("tool/2", "t.send", `{"as":"free","n":7}`), to("tool/3", "t.send", `{"as":"free"}`)}
		id := b.start(calls...)
		a := b.asked(id)
		if a.Step != "tool/3" || !strings.Contains(strings.Join(a.Reasons, " "), "unknown") || n != 2 {
			t.Errorf("asked for %s because %v after %d calls", a.Step, a.Reasons, n)
		}
		b.decide(a, approval.Approve)
		got := b.end(id, calls...)
		expect(t, got[0], Unclear, "connection was lost")
		expect(t, got[1], OK)
		expect(t, got[2], OK)
		if s := b.step(id, "tool/1"); s.State != run.Unknown {
			t.Errorf("step is %s", s.State)
		}
	})
}

func TestALocalToolsRowsAreOneCommitWithItsOutcome(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		def := define("t.note")
		def.Kind = tool.Local
		b.add(def, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
			if _, err := in.Tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, 'x')", "test/"+in.Step); err != nil {
				return tool.Output{}, err
			}
			switch {
			case strings.Contains(string(in.Input), `"n":1`):
				return tool.Output{}, errors.New("no")
			case strings.Contains(string(in.Input), `"n":2`):
				panic("oh")
			case strings.Contains(string(in.Input), `"n":3`):
				_, err := in.Tx.Exec(ctx, "INSERT INTO nowhere VALUES (1)")
				return tool.Output{}, err
			}
			return tool.Output{Text: "noted"}, nil
		})
		calls := []planned{to("0", "t.note", `{"as":"free"}`), to("1", "t.note", `{"as":"free","n":1}`),
			to("2", "t.note", `{"as":"free","n":2}`), to("3", "t.note", `{"as":"free","n":3}`), to("4", "t.note", `{"as":"free"}`)}
		id := b.start(calls...)
		got := b.end(id, calls...)
		expect(t, got[0], OK)
		expect(t, got[1], Failed, "no")
		expect(t, got[2], Failed, "panicked")
		expect(t, got[3], Failed)
		expect(t, got[4], OK)
		var keys []string
		if err := d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
			keys, err = db.All(ctx, q, db.Column[string], "SELECT key FROM meta WHERE key LIKE 'test/%' ORDER BY key")
			return err
		}); err != nil || fmt.Sprint(keys) != "[test/0 test/4]" {
			t.Errorf("rows %v: %v", keys, err)
		}
		if s := b.step(id, "0"); s.Opened != 0 || s.Audit.Seq == 0 {
			t.Errorf("a local call took two commits or has no audit: %+v", s)
		}
	})
}

func TestAPanicOfAToolIsItsFailureOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(define("t.send"), func(context.Context, tool.Invocation) (tool.Output, error) { panic("oh") })
	reads := define("t.read")
	reads.ReadOnly, reads.Repeat = true, tool.Repeatable
	b.add(reads, func(context.Context, tool.Invocation) (tool.Output, error) { panic("oh") })
	b.add(define("t.stream"), func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{Reader: io.NopCloser(panicReader{})}, nil
	})
	got := b.do(to("1", "t.send", `{"as":"free"}`), to("2", "t.read", `{"as":"free"}`), to("3", "t.stream", `{"as":"free"}`))
	expect(t, got[0], Unclear, "panicked") // it may have sent by then
	expect(t, got[1], Failed, "panicked")
	expect(t, got[2], Unclear, "panicked")
}

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic("oh") }

func TestAToolThatIgnoresCancellationIsAbandonedAndCapped(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	release := make(chan struct{})
	def := define("t.stuck")
	def.Timeout = 50 * time.Millisecond
	b.add(def, func(context.Context, tool.Invocation) (tool.Output, error) {
		<-release
		return tool.Output{Text: "at last"}, nil
	})
	b.add(define("t.send"), text("sent"))
	c := to("tool/1", "t.stuck", `{"as":"free"}`)
	var ids []string
	begun := time.Now()
	for range maxAbandoned {
		ids = append(ids, b.start(c))
	}
	for _, id := range ids {
		expect(t, b.end(id, c)[0], Unclear, "did not end in time", "do not repeat")
		if s := b.step(id, "tool/1"); s.State != run.Unknown {
			t.Errorf("step is %s", s.State)
		}
	}
	if took := time.Since(begun); took < heedTime || took > heedTime+15*time.Second {
		t.Errorf("abandoned after %s", took)
	}
	if n := b.act.Abandoned(); n != maxAbandoned {
		t.Errorf("%d calls are abandoned", n)
	}
	send := to("tool/1", "t.send", `{"as":"free"}`)
	expect(t, b.do(send)[0], Refused, "ignore their timeout")
	close(release)
	for b.act.Abandoned() > 0 {
		tick(t)
	}
	for b.events("tool.late") < maxAbandoned { // a late result is an event and nothing else
		tick(t)
	}
	expect(t, b.do(send)[0], OK)
	if s := b.step(ids[0], "tool/1"); s.State != run.Unknown {
		t.Errorf("a late result changed the step to %s", s.State)
	}
}

func TestAToolThatHeedsItsTimeoutFailsOrIsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	heeds := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	bare := func(ctx context.Context, _ tool.Invocation) (tool.Output, error) { return tool.Output{}, heeds(ctx) }
	reads, sends, says := define("t.read"), define("t.send"), define("t.says")
	reads.ReadOnly, reads.Repeat = true, tool.Repeatable
	reads.Timeout, sends.Timeout, says.Timeout = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	b.add(reads, bare)
	b.add(sends, bare)
	b.add(says, func(ctx context.Context, _ tool.Invocation) (tool.Output, error) {
		return tool.Output{}, fault.New(fault.Timeout, "nothing was sent: %w", heeds(ctx))
	})
	got := b.do(to("1", "t.read", `{"as":"free"}`), to("2", "t.send", `{"as":"free"}`), to("3", "t.says", `{"as":"free"}`))
	expect(t, got[0], Failed, "20ms")
	expect(t, got[1], Unclear, "outcome is unknown") // a bare error of the context does not say
	expect(t, got[2], Failed, "nothing was sent")
}

// endless is a producer that notices when it is stopped.
type endless struct {
	read   atomic.Int64
	closed atomic.Bool
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read.Load() > 1<<30 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func (e *endless) Close() error { e.closed.Store(true); return nil }

func TestAnOutputOfAGigabyteIsStoppedAtTheLimit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		src := &endless{}
		b.add(define("t.much"), func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{Reader: src}, nil })
		res := b.do(to("1", "t.much", `{"as":"free"}`))[0]
		expect(t, res, OK, "stopped at the tool's limit", "result.read")
		if !res.Cut || res.Size != 1<<20 || res.Blob == "" || len(res.Text) > MaxText || !src.closed.Load() {
			t.Errorf("cut %v, size %d, blob %q, text %d, closed %v", res.Cut, res.Size, res.Blob, len(res.Text), src.closed.Load())
		}
		if read := src.read.Load(); read > 2<<20 {
			t.Errorf("%d bytes were read of it", read)
		}
		r, err := b.blobs.Open(t.Context(), res.Blob)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil || n != 1<<20 || r.Close() != nil {
			t.Errorf("the blob has %d bytes: %v", n, err)
		}
	})
}

func TestOutputIsCleanedForModelAndStore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		dirty := "a\x00b\xffc\xed\xa0\x80d\u202ee"
		local := define("t.local")
		local.Kind = tool.Local
		b.add(define("t.text"), text(dirty))
		b.add(local, text(dirty))
		b.add(define("t.json"), func(context.Context, tool.Invocation) (tool.Output, error) {
			return tool.Output{JSON: json.RawMessage(`{"a":"\ud800"}`)}, nil
		})
		b.add(define("t.fail"), func(context.Context, tool.Invocation) (tool.Output, error) {
			return tool.Output{}, errors.New("bad: " + dirty)
		})
		b.add(define("t.long"), text(strings.Repeat("ä\x00", MaxText)))
		calls := []planned{to("1", "t.text", `{"as":"free"}`), to("2", "t.local", `{"as":"free"}`), to("3", "t.json", `{"as":"free"}`),
			to("4", "t.fail", `{"as":"free"}`), to("5", "t.long", `{"as":"free"}`)}
		id := b.start(calls...)
		for i, res := range b.end(id, calls...) {
			if strings.ContainsAny(res.Text, "\x00") || strings.ToValidUTF8(res.Text, "?") != res.Text || strings.Contains(res.Text, "\u202e") {
				t.Errorf("call %d: text %q", i+1, res.Text[:min(len(res.Text), 200)])
			}
			if len(res.Text) > MaxText {
				t.Errorf("call %d: %d bytes", i+1, len(res.Text))
			}
		}
	})
}

func TestAFloodOfRefusalsIsCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(define("t.send"), text("sent"))
	now := time.Unix(1_000_000*3600, 0)
	b.act.refusals.now = func() time.Time { return now }
	var calls []planned
	for i := range 50 {
		calls = append(calls, to(fmt.Sprint(i), "t.send", `{"as":"other"}`))
	}
	calls = append(calls, to("x", "t.send", `{"as":"another"}`))
	b.do(calls...)
	if n := len(b.entries("call.refused")); n != refusalsEach+1 {
		t.Errorf("%d entries", n)
	}
	now = now.Add(time.Hour)
	for range 2 {
		if err := b.act.FlushRefusals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := b.entries("call.refused")
	if last := all[len(all)-1]; len(all) != refusalsEach+2 || last.Count != 50-refusalsEach || last.Reason != "repeated" || last.Tool != "t.send" {
		t.Errorf("%d entries, the last is %+v", len(all), last)
	}
	b.do(calls[0])
	if n := len(b.entries("call.refused")); n != refusalsEach+3 {
		t.Errorf("in the next hour: %d entries", n)
	}
}
