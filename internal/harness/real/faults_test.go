//go:build harness

package real

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

func TestAKeyThatIsNotTaken(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Fails(401, 0, 0))
		rec := s.play(s.task("say something"))
		if rec.Outcome != harness.Auth || rec.Status != 401 && cli != harness.Codex || rec.Error == "" || rec.Text != "" {
			s.fail(rec, "not auth")
		}
	})
}

func TestARequestThatIsRefused(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Fails(400, 0, 0))
		rec := s.play(s.task("say something"))
		if rec.Outcome != harness.Limit && rec.Outcome != harness.Rejected {
			s.fail(rec, "neither limit nor rejected")
		}
		t.Logf("%s: %s %d after %d requests", cli, rec.Outcome, rec.Status, len(s.run.Turns()))
	})
}

func TestTwoRequestsOverTheRate(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Fails(429, 2, 1))
		rec := s.play(s.task("say something"))
		s.completed(rec, fakeapi.Text)
		t.Logf("%s: told %d retries", cli, rec.Retries)
	})
}

func TestAnAPIThatIsOverloadedForEver(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Fails(529, 0, 1))
		task := s.task("say something")
		task.Wall = 40 * time.Second // some never give up
		rec := s.play(task)
		if rec.Outcome != harness.Unavailable && (rec.Outcome != harness.Killed || rec.Reason != child.ReasonWall) {
			s.fail(rec, "neither unavailable nor ended")
		}
		t.Logf("%s: %s %s after %d requests", cli, rec.Outcome, rec.Reason, len(s.run.Turns()))
	})
}

func TestAStreamThatIsCutOnce(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{"cut": fakeapi.Cut, "error": fakeapi.InBand} {
		t.Run(name, func(t *testing.T) {
			each(t, all, func(t *testing.T, cli harness.Name) {
				s := set(t, cli, fakeapi.Scenario{Fault: fault, Times: 1})
				rec := s.play(s.task("say something"))
				t.Logf("%s: %s %d %q", cli, rec.Outcome, rec.Status, rec.Error)
				if rec.Outcome == harness.Completed && strings.HasSuffix(rec.Text, fakeapi.Text) {
					return
				}
				// Who does not try again says so.
				if rec.Outcome != harness.Unavailable && rec.Outcome != harness.Failed || rec.Error == "" {
					s.fail(rec, "neither completed nor told as failed")
				}
			})
		})
	}
}

func TestAHangIsEndedByTheLimitOfSilence(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain().With(fakeapi.Hang))
		task := s.task("say something")
		task.Quiet = 12 * time.Second
		if cli == harness.OpenCode {
			task.Quiet = 40 * time.Second // it takes some to begin, and says nothing until it is answered
		}
		rec := s.play(task)
		if rec.Outcome != harness.Killed || rec.Reason != child.ReasonQuiet || rec.Text != "" {
			s.fail(rec, "not ended by the limit")
		}
		if len(s.run.Turns()) == 0 {
			t.Error("it asked nothing")
		}
	})
}

// TestARunIsStoppedInTheMiddle ends each run while its shell works: the shell is in a
// session of its own, and nothing of it may live on.
func TestARunIsStoppedInTheMiddle(t *testing.T) {
	each(t, all, func(t *testing.T, cli harness.Name) {
		s := set(t, cli, fakeapi.Plain())
		s.runs()
		unique := fmt.Sprintf("%d.%d", 7000+len(s.run.Key), time.Now().UnixNano()%1e9)
		mark := filepath.Join(s.dir, "begun")
		s.run = s.api.Run(fakeapi.UseTools(s.shell("echo x > " + mark + "; (setsid sleep " + unique + " &) ; sleep " + unique)))
		task := s.task("wait")
		p := &permits{answer: child.Answer{Allow: true}}
		task.Write, task.Permit = true, p.permit
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var rec harness.Record
		ended := make(chan error, 1)
		go func() {
			var err error
			rec, err = s.starter.Run(ctx, task)
			ended <- err
		}()
		sleeping := func() int { return len(commands(t, "^sleep "+unique+" ?$")) }
		until(t, "the two sleep", func() bool { return sleeping() == 2 || len(ended) > 0 })
		before := time.Now()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ended within %s", cli, time.Since(before).Round(10*time.Millisecond))
		s.look(rec, task)
		if rec.Outcome != harness.Killed || rec.Reason != child.ReasonCancelled {
			s.fail(rec, "not cancelled")
		}
		if n := sleeping(); n != 0 {
			t.Errorf("%d live on", n)
		}
		if cli != harness.Pi && len(p.all()) == 0 {
			t.Error("it asked for no leave")
		}
	})
}
