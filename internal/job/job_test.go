package job

import (
	"bytes"
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

func TestATokenIsGoodWhileItsRunIsWorkedOnAndOneAnswerRefusesAllOthers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		first, second := b.work("first"), b.work("second")
		job, token := b.issue(first)
		other, otherToken := b.issue(second)
		if got, err := b.Verify(t.Context(), token); err != nil || got.ID != job.ID || got.Subject != "harness:test" {
			t.Fatalf("the token is that of %+v: %v", got, err)
		}
		_, secret, _ := strings.Cut(token, ".")
		refused := func(why, token string) {
			t.Helper()
			_, err := b.Verify(t.Context(), token)
			if !fault.Is(err, fault.Denied) || err.Error() != errToken.Error() {
				t.Errorf("%s: %v", why, err)
			}
			if _, err := b.call(token, "note", "a", ""); !fault.Is(err, fault.Denied) || err.Error() != errToken.Error() {
				t.Errorf("a call with %s: %v", why, err)
			}
		}
		for why, bad := range map[string]string{
			"an empty token":                 "",
			"noise":                          "ombud",
			"the id alone":                   job.ID,
			"the id and a dot":               job.ID + ".",
			"a short secret":                 job.ID + "." + secret[:62],
			"a long secret":                  token + "00",
			"another secret":                 job.ID + "." + strings.Repeat("00", 32),
			"the secret of another job":      other.ID + "." + secret,
			"a job that never was":           id.New("job") + "." + secret,
			"an id that is none":             "job_x." + secret,
			"a token with a statement in it": "job_' OR '1'='1." + secret,
		} {
			refused(why, bad)
		}
		b.got(act.OK, token, "note", "a", "")
		if err := b.End(t.Context(), job.ID, "its process is gone"); err != nil {
			t.Fatal(err)
		}
		refused("a job that was ended", token)
		b.let(second)
		refused("a job whose run has ended", otherToken)
		short, shortToken := b.issue(first, func(s *Spec) { s.Life = time.Microsecond })
		refused("a job whose time is over", shortToken)
		if n, err := b.Sweep(t.Context()); err != nil || n != 2 { // the run's and the expired one
			t.Errorf("%d jobs were swept: %v", n, err)
		}
		if job, _, err := b.jobOf(t.Context(), short.ID); err != nil || job.Ended == 0 {
			t.Errorf("the job is still open: %v", err)
		}
		if _, _, err := b.Issue(t.Context(), second.ID(), Spec{Subject: "harness:test", Parent: b.parent}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a run that has ended got a job: %v", err)
		}
		b.let(first)
	})
}

func TestATokenDiesWithTheExecutionItWasGivenTo(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		r := b.work("long")
		_, token := b.issue(r)
		b.halt() // the run goes back to the queue and is taken by the next process
		b.boot()
		again := <-b.hostOf("long").run
		if again.ID() != r.ID() {
			t.Fatal("another run was taken")
		}
		if _, err := b.Verify(t.Context(), token); !fault.Is(err, fault.Denied) {
			t.Errorf("the token of the execution before is good: %v", err)
		}
		_, fresh := b.issue(again)
		if _, err := b.Verify(t.Context(), fresh); err != nil {
			t.Errorf("the new token: %v", err)
		}
		if err := b.Runs.Cancel(t.Context(), r.ID(), "operator", "/stop"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Verify(t.Context(), fresh); !fault.Is(err, fault.Denied) {
			t.Errorf("the token of a run that is stopped is good: %v", err)
		}
		if _, err := b.Runs.Wait(t.Context(), r.ID()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOnlyADigestOfATokenIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := b.work("x")
	job, token := b.issue(r)
	_, text, _ := strings.Cut(token, ".")
	secret, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	err = b.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		var kept, body []byte
		if err := q.QueryRow(ctx, "SELECT token, body FROM jobs WHERE id = $1", job.ID).Scan(&kept, &body); err != nil {
			return err
		}
		if bytes.Contains(kept, secret) || bytes.Contains(body, secret) || len(kept) != 32 {
			t.Error("the secret is in the store")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events(t, b) {
		if strings.Contains(e, text) {
			t.Error("the secret is in an event")
		}
	}
	b.let(r)
}

func events(t *testing.T, b *bench) (out []string) {
	t.Helper()
	evs, err := b.log.Stream(t.Context(), "", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range evs {
		out = append(out, string(e.Data))
	}
	return out
}

func TestAJobThatAsksForMoreThanItsParentHoldsIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := b.work("x")
	for _, wide := range []policy.Rule{
		rule(policy.Allow, "tool"), rule(policy.Allow, "tool:*"), rule(policy.Allow, "tool:post.a"), rule(policy.Allow, "tool:note.secret"),
		rule(policy.Ask, "shell.exec"), rule(policy.Allow, "caps.write"),
	} {
		_, _, err := b.Issue(t.Context(), r.ID(), Spec{Subject: "harness:test", Parent: b.parent, Rules: []policy.Rule{rule(policy.Allow, "tool:note.a"), wide}})
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), wide.String()) {
			t.Errorf("%s: %v", wide, err)
		}
	}
	_, token := b.issue(r, func(s *Spec) {
		s.Rules = []policy.Rule{rule(policy.Allow, "tool:note.a"), rule(policy.Ask, "tool:post.a")}
	})
	b.got(act.OK, token, "note", "a", "")
	if res := b.got(act.Refused, token, "note", "b", ""); res.Class != fault.Denied {
		t.Errorf("what it did not ask for is refused as %s", res.Class)
	}
	b.let(r)
}

func TestACallWithItsKeyIsMadeOnceHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		r := b.work("x")
		_, token := b.issue(r)
		var wg sync.WaitGroup
		runs := make([]string, 50)
		for i := range runs {
			wg.Go(func() {
				ans, err := b.call(token, "note", "a", "one")
				if err != nil || ans.Result.Status != act.OK || ans.Result.Text != "note done" {
					t.Errorf("call %d: %+v %v", i, ans.Result, err)
				}
				runs[i] = ans.Run
			})
		}
		wg.Wait()
		for _, id := range runs {
			if id != runs[0] {
				t.Fatalf("two runs made it: %s, %s", runs[0], id)
			}
		}
		if n := b.called("note"); n != 1 {
			t.Errorf("it was made %d times", n)
		}
		if _, err := b.call(token, "note", "b", "one"); !fault.Is(err, fault.Conflict) {
			t.Errorf("another call with the same key: %v", err)
		}
		rec, _, err := b.Runs.Get(t.Context(), runs[0])
		if err != nil || rec.Kind != CallKind || rec.Parent != r.ID() || rec.Key != r.Record().Key || rec.Actor != "harness:test" {
			t.Errorf("the call's run is %+v: %v", rec, err)
		}
		// The key is the job's own: another job's call with it is another call.
		_, second := b.issue(r)
		b.got(act.OK, second, "note", "a", "one")
		if n := b.called("note"); n != 2 {
			t.Errorf("it was made %d times", n)
		}
		b.let(r)
	})
}

func TestADenyOfTheParentHoldsInTheJobAndARevokedGrantAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := b.work("x")
	_, token := b.issue(r, func(s *Spec) { s.Rules = []policy.Rule{rule(policy.Allow, "tool:note.*")} })
	if res := b.got(act.Refused, token, "note", "secret", ""); res.Class != fault.Denied || res.Decision != "deny" {
		t.Errorf("the deny of the parent is %s: %s", res.Decision, res.Text)
	}
	b.got(act.OK, token, "note", "a", "")
	b.parentMay(func(a *act.Authority) {
		a.Grants = policy.NewLayer("grants of agent:main", []policy.Rule{rule(policy.Allow, "tool:page")})
	})
	b.got(act.Refused, token, "note", "a", "")
	// A parent that gains does not widen a job that is out.
	b.parentMay(func(a *act.Authority) {
		a.Grants = policy.NewLayer("grants of agent:main", []policy.Rule{rule(policy.Allow, "tool")})
	})
	b.got(act.OK, token, "note", "a", "")
	b.got(act.Refused, token, "note", "secret", "")
	b.got(act.Refused, token, "page", "", "")
	b.parentMay(func(a *act.Authority) { a.Tier = policy.Untrusted })
	b.got(act.Refused, token, "note", "a", "")
	b.let(r)
}

func TestAJobUsesOnlyItsTools(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := b.work("x")
	_, token := b.issue(r, func(s *Spec) { s.Tools = []string{"no*"} })
	b.got(act.OK, token, "note", "a", "")
	b.got(act.Refused, token, "page", "", "")
	offers, err := b.Offers(t.Context(), token)
	if err != nil || len(offers) != 1 || offers[0].Name != "note" {
		t.Errorf("it is offered %+v: %v", offers, err)
	}
	if _, err := b.Offers(t.Context(), token+"0"); !fault.Is(err, fault.Denied) {
		t.Errorf("offers without a token: %v", err)
	}
	_, few := b.issue(r, func(s *Spec) { s.Calls = 1 })
	b.got(act.OK, few, "note", "a", "k")
	if _, err := b.call(few, "note", "b", ""); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a call over the bound: %v", err)
	}
	b.got(act.OK, few, "note", "a", "k") // asking again is not a call
	b.let(r)
}

func TestACallThatNeedsAPersonAnswersThatItWaits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		r := b.work("x")
		_, token := b.issue(r)
		// The parent's standing approval of post.public is not the job's.
		res := b.got(act.Parked, token, "post", "public", "p")
		if res.Class != fault.Waiting || !id.Valid("apr", res.Approval) || !strings.Contains(res.Text, res.Approval) {
			t.Fatalf("it answers %+v", res)
		}
		if again := b.got(act.Parked, token, "post", "public", "p"); again.Approval != res.Approval {
			t.Errorf("it was asked twice: %s, %s", res.Approval, again.Approval)
		}
		if _, err := b.approvals.Resolve(t.Context(), res.Approval, approval.Reply{Decision: approval.Approve}, "harness:test"); !fault.Is(err, fault.Denied) {
			t.Errorf("the job approved itself: %v", err)
		}
		if _, err := b.approvals.Resolve(t.Context(), res.Approval, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
			t.Fatal(err)
		}
		ended(t, b, token, "public", "p", act.OK)
		if n := b.called("post"); n != 1 {
			t.Errorf("it was made %d times", n)
		}
		no := b.got(act.Parked, token, "post", "b", "q")
		if _, err := b.approvals.Resolve(t.Context(), no.Approval, approval.Reply{Decision: approval.Deny, Note: "not there"}, "operator"); err != nil {
			t.Fatal(err)
		}
		if res := ended(t, b, token, "b", "q", act.Refused); res.Class != fault.Denied {
			t.Errorf("a no is %s", res.Class)
		}
		b.let(r)
	})
}

// ended asks again until the call has come to an end.
func ended(t *testing.T, b *bench, token, as, key string, want act.Status) act.Result {
	t.Helper()
	for range 1000 {
		ans, err := b.call(token, "post", as, key)
		if err != nil {
			t.Fatal(err)
		}
		if ans.Result.Status != act.Parked {
			if ans.Result.Status != want {
				t.Fatalf("it is %s, want %s: %s", ans.Result.Status, want, ans.Result.Text)
			}
			return ans.Result
		}
		pass(t)
	}
	t.Fatal("it waits for ever")
	return act.Result{}
}

func pass(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// left makes a call that asks, and returns its question once nothing waits for it any more.
func (b *bench) left(token, as string) approval.Approval {
	b.t.Helper()
	res := b.got(act.Parked, token, "post", as, as)
	for range 1000 {
		a, err := b.approvals.Get(b.t.Context(), res.Approval)
		if err != nil {
			b.t.Fatal(err)
		}
		if a.Detached {
			return a
		}
		pass(b.t)
	}
	b.t.Fatal("it is waited for, for ever")
	return approval.Approval{}
}

func TestACallApprovedAfterItsWaitIsMadeUnderItsOldKeyIfItsJobLives(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Hold = time.Millisecond })
	r := b.work("x")
	job, token := b.issue(r)
	left := func(as string) approval.Approval { return b.left(token, as) }
	approve := func(a approval.Approval) {
		t.Helper()
		if _, err := b.approvals.Resolve(t.Context(), a.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
			t.Fatal(err)
		}
	}
	a := left("a")
	b.got(act.Parked, token, "post", "a", "a")
	approve(a)
	ended(t, b, token, "a", "a", act.OK)
	late := left("late")
	if err := b.End(t.Context(), job.ID, "its process is gone"); err != nil {
		t.Fatal(err)
	}
	approve(late)
	rec, err := b.Runs.Wait(t.Context(), "run_"+late.ID[len("apr_"):])
	if err != nil || rec.State != run.Failed || rec.ErrorClass != fault.Denied {
		t.Errorf("the call of a job that has ended is %s %s: %v", rec.State, rec.Error, err)
	}
	if n := b.called("post"); n != 1 {
		t.Errorf("it was made %d times", n)
	}
	b.let(r)
}

func TestTheEndOfAJobStopsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := b.work("x")
	_, token := b.issue(r)
	res := b.got(act.Parked, token, "post", "a", "k")
	b.let(r)
	if n, err := b.Sweep(t.Context()); err != nil || n != 1 {
		t.Fatalf("%d jobs were swept: %v", n, err)
	}
	a, err := b.approvals.Get(t.Context(), res.Approval)
	if err != nil || a.State != approval.Expired {
		t.Errorf("the question is %s: %v", a.State, err)
	}
	calls, err := b.Runs.List(t.Context(), run.Filter{Kind: CallKind})
	if err != nil || len(calls) != 1 || calls[0].State != run.Cancelled {
		t.Errorf("the call is %+v: %v", calls, err)
	}
	if n := b.called("post"); n != 0 {
		t.Errorf("it was made %d times", n)
	}
}

func TestWhatAJobWasShownMarksItsLaterCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := b.work("x")
	job, token := b.issue(r)
	b.got(act.OK, token, "note", "a", "")
	b.got(act.OK, token, "page", "", "")
	got, _, err := b.jobOf(t.Context(), job.ID)
	if err != nil || !got.Label().Tainted() {
		t.Errorf("the job carries %s: %v", got.Label(), err)
	}
	// A note is an effect that tells nobody knows whom: it was free before.
	if res := b.got(act.Parked, token, "note", "a", ""); res.Class != fault.Waiting {
		t.Errorf("a call after reading what others wrote is %s", res.Class)
	}
	b.let(r)
}

// A job can never do what its parent may not, whatever it was given, and what the
// parent loses it loses too.
func TestAJobIsNeverAboveItsParent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		then, now := genAuthority(t, "then"), genAuthority(t, "now")
		j := New(Deps{Parent: func(context.Context, string, string, policy.Tier) (*act.Authority, error) { return now, nil }})
		spec := Spec{Subject: "harness:x", Parent: then, Rules: rapid.SliceOfN(genRule(), 0, 5).Draw(t, "wanted")}
		if rapid.Bool().Draw(t, "all") {
			spec.Rules = nil
		}
		job, err := design("run_x", spec)
		if err != nil {
			if !fault.Is(err, fault.Denied) {
				t.Fatal(err)
			}
			return
		}
		auth, err := j.authority(context.Background(), job)
		if err != nil {
			t.Fatal(err)
		}
		need := []scope.Scope{genScope().Draw(t, "need")}
		child := decide(auth, need)
		for name, parent := range map[string]*act.Authority{"then": then, "now": now} {
			p := *parent
			p.Autonomy = now.Autonomy // a level asks, it gives nothing
			if most := decide(&p, need); child > most {
				t.Fatalf("the job has %s on %s, its parent %s had %s", child, need[0], name, most)
			}
		}
	})
}

func decide(a *act.Authority, need []scope.Scope) policy.Effect {
	return policy.Decide(&policy.Input{
		Subject: a.Subject, Grants: a.Grants, Role: a.Role, Bounds: a.Bounds, Tier: a.Tier, Standing: a.Standing, Autonomy: a.Autonomy, Scopes: need,
	}).Effect
}

func genScope() *rapid.Generator[scope.Scope] {
	return rapid.Custom(func(t *rapid.T) scope.Scope {
		return scope.Must(rapid.SampledFrom([]string{
			"fs.read", "fs.read:/**", "fs.read:/a/**", "fs.read:/a/b", "fs.read:/a/b/**", "shell.exec", "shell.exec:ls", "shell.exec:ls,cat",
			"memory.write", "memory.write:x*", "memory.read", "net.fetch", "caps.write",
		}).Draw(t, "scope"))
	})
}

func genRule() *rapid.Generator[policy.Rule] {
	return rapid.Custom(func(t *rapid.T) policy.Rule {
		return policy.Rule{Scope: genScope().Draw(t, "scope"), Effect: rapid.SampledFrom([]policy.Effect{policy.Allow, policy.Allow, policy.Ask, policy.Deny}).Draw(t, "effect")}
	})
}

func genAuthority(t *rapid.T, when string) *act.Authority {
	auto, err := policy.NewAutonomy(rapid.SampledFrom([]policy.Level{policy.Manual, policy.Assisted, policy.Autonomous}).Draw(t, when+" level"), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &act.Authority{
		Subject: "agent:main", Tier: rapid.SampledFrom([]policy.Tier{policy.Untrusted, policy.SemiTrusted, policy.Paired, policy.Trusted}).Draw(t, when+" tier"),
		Autonomy: auto, Grants: policy.NewLayer("grants", rapid.SliceOfN(genRule(), 0, 6).Draw(t, when+" grants")),
	}
	if rapid.Bool().Draw(t, when+" has a role") {
		roles, err := policy.LoadRoles("/w", []policy.RoleSpec{{Name: "r", MaxTier: "semitrusted", Allow: []string{"memory.read", "memory.write", "fs.read", "net.fetch"}}})
		if err != nil {
			t.Fatal(err)
		}
		if a.Role, err = roles.Get(rapid.SampledFrom([]string{"r", policy.RoleFirstParty}).Draw(t, when+" role")); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, when+" is bound") {
		a.Bounds = []*policy.Layer{policy.NewLayer("bound", rapid.SliceOfN(genRule(), 0, 6).Draw(t, when+" bound"))}
	}
	return a
}
