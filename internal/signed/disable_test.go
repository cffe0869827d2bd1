package signed

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/wasmloop"
)

// TestWeakness22DisableStopsEveryTrigger: a signed loop that is started by events went on
// when it was disabled.
func TestWeakness22DisableStopsEveryTrigger(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		s.install(hello(t, "1.0.0", func(m *wasmloop.Manifest) {
			m.Host = append(m.Host, wasmloop.FnAfter)
			m.Events, m.Webhook = []string{"comms.message"}, "/hello"
		}))
		open := "open"
		if _, err := s.Set(t.Context(), Change{Name: "hello", By: "operator", Webhook: &open}); err != nil {
			t.Fatal(err)
		}
		if got := s.targets(); len(got) != 1 || got[0] != "loop:hello at @every 1h on comms.message hook hello open timer" {
			t.Fatal(got)
		}
		if err := s.log.Start(t.Context(), s.hits.Subscription()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.log.Stop)
		started := func() (n int) {
			err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "SELECT count(*) FROM runs WHERE kind = $1", Kind).Scan(&n)
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		standing := func() trigger.Standing {
			list, err := s.hits.List(t.Context(), Owner)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0]
		}
		// all is every way there is: an event, a webhook, its schedule, a timer or another loop.
		all := func(n string) {
			t.Helper()
			_, err := s.log.Append(t.Context(), eventlog.New{
				Stream: "x", Kind: "comms.message", Actor: "test", Data: map[string]string{"content": n}, Expect: eventlog.Any,
			})
			if err != nil {
				t.Fatal(err)
			}
			s.hits.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/hooks/hello", strings.NewReader(n)))
			starts := schedule.Starts{Target: "loop:hello", Label: label.Of(label.Own, label.OperatorOnly)}
			firing := schedule.Firing{Schedule: schedule.Schedule{ID: "sch_" + n, Spec: schedule.Spec{Owner: "loop:hello", Name: "1", Starts: starts}}, At: time.Now(), Kind: schedule.Due}
			timer := trigger.Trigger{Kind: trigger.ByTimer, Name: "t", Payload: json.RawMessage(`{}`), Label: starts.Label}
			for _, do := range []func(context.Context, *db.Tx) (string, error){
				func(ctx context.Context, tx *db.Tx) (string, error) { return s.hits.Fire(ctx, tx, firing) },
				func(ctx context.Context, tx *db.Tx) (string, error) {
					return s.hits.StartTx(ctx, tx, "loop:hello", timer)
				},
			} {
				err := s.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					_, err := do(ctx, tx)
					return err
				})
				if err != nil && !fault.Is(err, fault.Conflict) {
					t.Fatal(err)
				}
			}
		}
		if _, err := s.hits.Pause(t.Context(), "loop:hello", "operator"); err != nil {
			t.Fatal(err)
		}
		all("1")
		s.eventually("the event", func() bool { return standing().Withheld >= 3 })
		// An upgrade does not enable it.
		s.install(hello(t, "2.0.0", func(m *wasmloop.Manifest) { m.Events, m.Webhook = []string{"comms.message"}, "/hello" }))
		all("2")
		s.eventually("the next event", func() bool { return standing().Withheld >= 6 })
		if n := started(); n != 0 || standing().PausedBy != "operator" {
			t.Errorf("%d runs were started while it was disabled, by %q", n, standing().PausedBy)
		}
		if _, err := s.hits.Resume(t.Context(), "loop:hello", "operator"); err != nil {
			t.Fatal(err)
		}
		all("3")
		s.eventually("its runs", func() bool { return started() >= 4 })
	})
}

func (s *shelf) eventually(what string, is func() bool) {
	s.t.Helper()
	for late := time.After(60 * time.Second); !is(); {
		select {
		case <-late:
			s.t.Fatalf("%s does not come", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A run computes for minutes: what is removed or revoked meanwhile makes no further call.
func TestARunOfWhatIsRemovedOrRevokedMakesNoFurtherCall(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(stack){
		"removed": func(s stack) { delete(s, "guest") },
		"revoked": func(s stack) {
			x := s["guest"]
			x.Revoked = "a key"
			s["guest"] = x
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onSites(t, choice{}, func(t *testing.T, s *site) {
				s.effect = func(text string) {
					if strings.Contains(text, "one") {
						change(s.shelf)
					}
				}
				id := s.start(t, put("one"), put("two"))
				rec := s.end(t, id)
				if rec.State != run.Failed || rec.ErrorClass != fault.Denied || !strings.Contains(rec.Error, what) {
					t.Errorf("%+v", rec)
				}
				if n := s.did("t.put"); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		})
	}
}

// TestALoopCanBeInstalledDisabled in one step: between two, something could start it.
func TestALoopCanBeInstalledDisabled(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		var seen []string
		s.d.Tell = func(_ context.Context, tx *db.Tx, _, _ string) error {
			tx.AfterCommit(func() {
				looked := make(chan struct{})
				go func() { // as anybody would look, right after the commit
					defer close(looked)
					list, err := s.hits.List(t.Context(), Owner)
					if err != nil {
						t.Error(err)
					}
					for _, l := range list {
						seen = append(seen, l.Name+" paused by "+l.PausedBy)
					}
				}()
				<-looked
			})
			return nil
		}
		if _, err := s.try(hello(t, "1.0.0", nil), func(o *Order) { o.Disabled = true }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(seen, []string{"loop:hello paused by operator"}) {
			t.Error(seen)
		}
	})
}
