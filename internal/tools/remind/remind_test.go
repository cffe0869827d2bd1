package remind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t      *testing.T
	db     *db.DB
	log    *eventlog.Log
	engine *run.Engine
	reg    *tool.Registry
	inv    *tool.Invoker
}

func stockholm(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Stockholm")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func setup(t *testing.T, d *db.DB) *bench {
	t.Helper()
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, db: d, log: eventlog.NewLog(d, v, nil, eventlog.Options{Poll: 20 * time.Millisecond})}
	b.engine = run.New(d, v, b.log, run.NewKinds(), run.Options{Poll: 20 * time.Millisecond})
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	if err := New(b.engine, stockholm(t)).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

// open starts the loops and stops them at the end of the test.
func (b *bench) open(subs ...eventlog.Subscription) {
	b.t.Helper()
	if err := errors.Join(b.log.Start(b.t.Context(), subs...), b.engine.Open(b.t.Context())); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := b.engine.Stop(context.Background()); err != nil {
			b.t.Error(err)
		}
		b.log.Stop()
	})
}

func (b *bench) call(conversation, name, input string, l label.Label) (out tool.Output, err error) {
	b.t.Helper()
	def, err := b.reg.Get(name)
	if err != nil {
		b.t.Fatal(err)
	}
	raw := json.RawMessage(input)
	if err := b.reg.Validate(name, raw); err != nil {
		return out, err
	}
	if _, err := def.Scopes(raw); err != nil {
		return out, err
	}
	inv := tool.Invocation{Conversation: conversation, Subject: "agent:main", Input: raw, Label: l}
	if def.Kind != tool.Local {
		return b.inv.Call(b.t.Context(), name, inv)
	}
	err = b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		inv.Tx = tx
		out, err = b.inv.Call(ctx, name, inv)
		return err
	})
	return out, err
}

var ids = regexp.MustCompile(`rem_[0-9a-f]{32}`)

func (b *bench) says(name, input, want string) tool.Output {
	b.t.Helper()
	out, err := b.call("c1", name, input, label.Of(label.Operator, label.OperatorOnly))
	if err != nil {
		b.t.Fatalf("%s %s: %v", name, input, err)
	}
	if got := ids.ReplaceAllString(out.Text, "X"); got != want {
		b.t.Errorf("%s %s:\n got %s\nwant %s", name, input, got, want)
	}
	return out
}

// fixed is a store whose clock stands at Wednesday 4 March 2026, 12:00 in Stockholm.
func fixed(t *testing.T) *bench {
	t.Helper()
	o := dbtest.Options(t, dbtest.KindSQLite)
	o.Now = func() time.Time { return time.Date(2026, 3, 4, 11, 0, 0, 0, time.UTC) }
	return setup(t, dbtest.Open(t, o))
}

func TestRemindersAreSetListedAndCancelled(t *testing.T) {
	t.Parallel()
	b := fixed(t)
	b.says("remind.list", `{}`, "There are no reminders.")
	b.says("remind.set", `{"text":"call mum","at":"2026-03-04T17:00:00+01:00"}`, "Reminder set for Wednesday 4 March 2026 at 17:00:00 CET (X).")
	b.says("remind.set", `{"text":"call the vet","in_seconds":300}`, "Reminder set for Wednesday 4 March 2026 at 12:05:00 CET (X).")
	b.says("remind.set", `{"text":"pay rent","at":"2026-07-01 09:00","zone":"America/New_York"}`, "Reminder set for Wednesday 1 July 2026 at 09:00:00 EDT (X).")
	b.says("remind.set", `{"text":"stretch","at":"2026-03-04T14:00"}`, "Reminder set for Wednesday 4 March 2026 at 14:00:00 CET (X).")
	if _, err := b.call("c2", "remind.set", `{"text":"call mum","in_seconds":60}`, label.Of(label.Untrusted("eve"), label.Conversation("c2"))); err != nil {
		t.Fatal(err)
	}
	all := "Wednesday 4 March 2026 at 12:05:00 CET: call the vet (X)\n" +
		"Wednesday 4 March 2026 at 14:00:00 CET: stretch (X)\n" +
		"Wednesday 4 March 2026 at 17:00:00 CET: call mum (X)\n" +
		"Wednesday 1 July 2026 at 09:00:00 EDT: pay rent (X)"
	out := b.says("remind.list", `{}`, all)
	if out.Label == nil || out.Label.Tainted() {
		t.Errorf("the operator's reminders are labelled %v", out.Label)
	}
	b.says("remind.cancel", `{"query":"call"}`, "Nothing was cancelled, because more than one reminder fits. Say which one, by its id or more of its words:\n"+
		"Wednesday 4 March 2026 at 12:05:00 CET: call the vet (X)\nWednesday 4 March 2026 at 17:00:00 CET: call mum (X)")
	b.says("remind.cancel", `{"query":"Mum call"}`, "Cancelled: Wednesday 4 March 2026 at 17:00:00 CET: call mum (X)")
	vet := ids.FindString(out.Text)
	if _, err := b.call("c2", "remind.cancel", `{"id":"`+vet+`"}`, label.Label{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another conversation cancelled it: %v", err)
	}
	b.says("remind.cancel", `{"id":"`+vet+`"}`, "Cancelled: Wednesday 4 March 2026 at 12:05:00 CET: call the vet (X)")
	if _, err := b.call("c1", "remind.cancel", `{"id":"`+vet+`"}`, label.Label{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("cancelled twice: %v", err)
	}
	if out, err := b.call("c2", "remind.list", `{}`, label.Label{}); err != nil || out.Label == nil || !out.Label.Tainted() || strings.Contains(out.Text, "rent") {
		t.Errorf("the stranger's conversation: %q, %v, %v", out.Text, out.Label, err)
	}
	if out, err := b.call("", "remind.list", `{}`, label.Label{}); err != nil || out.Text != "There are no reminders." {
		t.Errorf("outside of conversations: %q, %v", out.Text, err)
	}
}

func TestTimesThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	b := fixed(t)
	for input, want := range map[string]string{
		`{"text":"x","at":"2026-03-04T11:59:59+01:00"}`:        "is in the past: it is Wednesday 4 March 2026 at 12:00:00 CET now",
		`{"text":"x","at":"2026-03-04T12:00:00+01:00"}`:        "is in the past",
		`{"text":"x","at":"2025-03-04 12:00"}`:                 "is in the past",
		`{"text":"x","at":"2036-06-01T00:00:00Z"}`:             "at most ten years away",
		`{"text":"x","in_seconds":900000000000}`:               "at most ten years away",
		`{"text":"x","in_seconds":9223372036854775807}`:        "at most ten years away",
		`{"text":"x","in_seconds":0}`:                          "in_seconds",
		`{"text":"x","at":"tomorrow"}`:                         "is not a time; write it like",
		`{"text":"x","at":"2026-02-30T10:00:00Z"}`:             "is not a time",
		`{"text":"x","at":"2026-03-29T02:30"}`:                 "the clocks of Europe/Stockholm skip 2026-03-29T02:30",
		`{"text":"x","at":"2026-05-01T10:00","zone":"Mars/X"}`: "there is no time zone Mars/X",
		`{"text":"x","at":"2026-05-01T10:00","zone":"Local"}`:  "there is no time zone Local",
		`{"text":"x"}`: "either at or in_seconds",
		`{"text":"x","at":"2026-05-01T10:00","in_seconds":5}`: "either at or in_seconds",
		`{"text":" \n ","in_seconds":5}`:                      "bytes of text",
		`{"in_seconds":5}`:                                    "text",
	} {
		if out, err := b.call("c1", "remind.set", input, label.Label{}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want an error with %q", input, out.Text, err, want)
		}
	}
	if _, err := b.call("", "remind.set", `{"text":"x","in_seconds":5}`, label.Label{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("outside of conversations: %v", err)
	}
	b.says("remind.list", `{}`, "There are no reminders.")
	for range maxArmed {
		if _, err := b.call("c1", "remind.set", `{"text":"x","in_seconds":5}`, label.Label{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.call("c1", "remind.set", `{"text":"x","in_seconds":5}`, label.Label{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("one too many: %v", err)
	}
}

// TestATimeOnTheClockIsThatTime: whatever the zone does, the instant read from a
// clock time shows that time, is the first that does, and one is refused only if
// none does.
func TestATimeOnTheClockIsThatTime(t *testing.T) {
	t.Parallel()
	zones := []string{"Europe/Stockholm", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC", "America/Santiago", "Africa/Casablanca"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		// Any minute, but every other time one near a change of the clocks.
		at := time.Unix(rapid.Int64Range(1767225600, 2082758400).Draw(t, "unix")/60*60, 0).In(zone)
		if _, end := at.ZoneBounds(); rapid.Bool().Draw(t, "near") && !end.IsZero() {
			at = end.Add(time.Duration(rapid.IntRange(-180, 180).Draw(t, "minutes")) * time.Minute).In(zone)
		}
		const form = "2006-01-02T15:04"
		wall := at.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 30, 60}).Draw(t, "skew")) * time.Minute).Format(form)
		first := time.Time{}
		naive, err := time.Parse(form, wall)
		if err != nil {
			t.Fatal(err)
		}
		for m := -16 * 60; m <= 16*60; m++ {
			if c := naive.Add(time.Duration(m) * time.Minute).In(zone); c.Format(form) == wall {
				first = c
				break
			}
		}
		got, err := parse(wall, zone)
		if first.IsZero() != (err != nil) || err == nil && !got.Equal(first) {
			t.Fatalf("%s in %s is %v, %v, want %v", wall, name, got, err, first)
		}
	})
}

func TestAReminderIsToldOnceInItsConversation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		told := make(chan string, 10)
		tries := 0
		stranger := label.Of(label.Untrusted("chat:eve"), label.Conversation("c1"))
		deliver := func(_ context.Context, tx *db.Tx, conversation, cause, text string, from label.Label) error {
			tries++
			if tries == 1 {
				return errors.New("not yet") // is retried in one second
			}
			if !reflect.DeepEqual(from, stranger) {
				t.Errorf("the words of a reminder have the label %s", from)
			}
			line := fmt.Sprintf("%s %t %s", conversation, strings.HasPrefix(cause, "timer:rem_"), text)
			tx.AfterCommit(func() { told <- line })
			return nil
		}
		if _, err := b.call("c1", "remind.set", `{"text":"call mum","in_seconds":1}`, stranger); err != nil {
			t.Fatal(err)
		}
		armed, err := b.engine.Timers(t.Context(), "c1")
		if err != nil || len(armed) != 1 {
			t.Fatalf("armed %+v, %v", armed, err)
		}
		late := armed[0]
		late.ID, late.At = "rem_late", armed[0].At-(2*time.Hour).Microseconds()
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			other := run.Timer{ID: "other", Kind: "something else", At: late.At, Payload: json.RawMessage(`[]`)}
			return errors.Join(b.engine.ArmTx(ctx, tx, late), b.engine.ArmTx(ctx, tx, other))
		})
		if err != nil {
			t.Fatal(err)
		}
		b.open(OnFired(deliver))
		got := map[bool]string{}
		for range 2 {
			select {
			case line := <-told:
				got[strings.Contains(line, "due")] = line
			case <-time.After(20 * time.Second):
				t.Fatalf("told only %v", got)
			}
		}
		due := time.UnixMicro(late.At).In(stockholm(t)).Format("Monday 2 January 2006 at 15:04:05 MST")
		if got[false] != "c1 true ⏰ Reminder: call mum" || got[true] != "c1 true ⏰ Reminder: call mum\n(It was due on "+due+".)" {
			t.Errorf("told %v", got)
		}
		b.says("remind.list", `{}`, "There are no reminders.")
		select {
		case line := <-told:
			t.Errorf("told again: %q", line)
		default:
		}
	})
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	b := fixed(t)
	s := OnFired(func(context.Context, *db.Tx, string, string, string, label.Label) error {
		return errors.New("delivered")
	})
	for data, want := range map[string]fault.Class{
		`{"kind":"other","payload":[]}`: "", `{"kind":"reminder","payload":"x"}`: fault.Verification, `[]`: fault.Verification,
	} {
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return s.Handle(ctx, tx, eventlog.Event{ID: "e", Kind: run.TimerFired, Data: json.RawMessage(data)})
		})
		if fault.ClassOf(err) != want {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
	}
}

func TestDefinitionsSayWhatTheToolsDo(t *testing.T) {
	t.Parallel()
	b := fixed(t)
	for name, want := range map[string][3]string{
		"remind.set":    {"remind.write", `{"text":"a\u202eb","in_seconds":60}`, `remind in 60 s of "a\u202eb"`},
		"remind.list":   {"remind.read", `{}`, "list reminders"},
		"remind.cancel": {"remind.write", `{"query":"mum"}`, "cancel the reminder about mum"},
	} {
		def, err := b.reg.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		need, err := def.Scopes(json.RawMessage(want[1]))
		if err != nil || len(need) != 1 || need[0].String() != want[0] || def.ReadOnly != (name == "remind.list") {
			t.Errorf("%s needs %v, %v; read-only %t", name, need, err, def.ReadOnly)
		}
		if got := def.Summary(json.RawMessage(want[1])); got != want[2] {
			t.Errorf("%s is shown as %s", name, got)
		}
	}
}
