package approval

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// moves says from where each state may be reached; any other change is a defect.
var moves = map[State][]State{
	Approved: {Pending},
	Denied:   {Pending},
	Expired:  {Pending, Approved},
	Used:     {Approved},
}

func TestWhateverHappensAnApprovalIsSpentOnceAndOnlyOncePermitted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{Expires: time.Hour, Good: 20 * time.Minute})
		check, passed, failed := 0, 0, false
		enough := map[dbtest.Kind]int{dbtest.KindSQLite: 40, dbtest.KindPostgres: 20}[kind]
		rapid.Check(t, func(t *rapid.T) {
			if passed >= enough && !failed {
				return // a commit on a server takes its time
			}
			defer func() {
				passed, failed = passed+1, failed || t.Failed()
			}()
			check++
			last, spent := map[string]State{}, map[string]int{}
			var all []Approval
			pick := func(t *rapid.T) Approval {
				if len(all) == 0 {
					t.Skip("none yet")
				}
				return rapid.SampledFrom(all).Draw(t, "approval")
			}
			// observe fails unless the state was reached by a move there is.
			observe := func(t *rapid.T) {
				for _, a := range all {
					now, err := b.Get(b.t.Context(), a.ID)
					if err != nil {
						t.Fatal(err)
					}
					was := last[a.ID]
					legal := now.State == was
					for _, from := range moves[now.State] {
						legal = legal || from == was
					}
					if was == Pending && now.State == Used {
						legal = false // nothing here does both
					}
					if !legal {
						t.Fatalf("%s went from %s to %s", a.ID, was, now.State)
					}
					if (now.State == Pending) != (now.Resolver == "") || (now.State == Pending) != (now.Resolved == 0) {
						t.Fatalf("%s is %s, resolved by %q at %d", a.ID, now.State, now.Resolver, now.Resolved)
					}
					if spent[a.ID] > 1 || (spent[a.ID] == 1) != (now.State == Used) {
						t.Fatalf("%s is %s and was spent %d times", a.ID, now.State, spent[a.ID])
					}
					last[a.ID] = now.State
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"ask": func(t *rapid.T) {
					q := call(fmt.Sprintf("tool/%d", rapid.IntRange(0, 2).Draw(t, "step")))
					q.Run = fmt.Sprintf("run_%d", check)
					q.CallHash = append(q.CallHash, byte(rapid.IntRange(0, 1).Draw(t, "version")))
					a, err := b.ask(q)
					if err != nil {
						t.Fatal(err)
					}
					if _, known := last[a.ID]; !known {
						last[a.ID] = Pending
						all = append(all, a)
					}
				},
				"resolve": func(t *rapid.T) {
					a := pick(t)
					d := rapid.SampledFrom([]Decision{Approve, Deny}).Draw(t, "decision")
					who := rapid.SampledFrom([]string{"operator", a.Subject}).Draw(t, "who")
					got, err := b.Resolve(b.t.Context(), a.ID, Reply{Decision: d}, who)
					switch {
					case err == nil && (last[a.ID] != Pending || who == a.Subject || got.Resolver != who):
						t.Fatalf("%s was %s and %s could %s it", a.ID, last[a.ID], who, d)
					case err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Denied):
						t.Fatal(err)
					}
				},
				"use": func(t *rapid.T) {
					a := pick(t)
					hash := rapid.SampledFrom([][]byte{a.CallHash, []byte("another call")}).Draw(t, "hash")
					err := b.use(a.ID, hash)
					if err == nil {
						spent[a.ID]++
						if last[a.ID] != Approved || string(hash) != string(a.CallHash) {
							t.Fatalf("%s was %s and let %q pass", a.ID, last[a.ID], hash)
						}
					}
				},
				"time": func(t *rapid.T) {
					b.pass(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)
				},
				"expire": func(t *rapid.T) {
					if _, err := b.ExpireOnce(b.t.Context()); err != nil {
						t.Fatal(err)
					}
				},
				"": observe,
			})
		})
	})
}
