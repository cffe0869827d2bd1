package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

func TestAFreshClientCanDoNothingAndIsToldWhatToGrant(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		b.add("claude")
		if list, err := b.Offers(t.Context(), "claude"); err != nil || len(list) != 0 {
			t.Errorf("offered %+v, %v", list, err)
		}
		res := b.got("refused", "claude", "note", "home", "")
		if res.Class != fault.Denied || !strings.Contains(res.Text, "ombud caps grant mcp:claude 'memory.write:home'") {
			t.Errorf("%s: %s", res.Class, res.Text)
		}
		b.may("claude", "allow shell.exec", "allow memory.read")
		if res := b.got("refused", "claude", "shell", "ls", ""); !strings.Contains(res.Text, "No client of this kind can be given shell.exec:/bin/ls") {
			t.Errorf("a scope of a higher tier: %s", res.Text)
		}
		for _, name := range []string{"own.secretly", "own.lent", "own.only"} {
			if res := b.got("refused", "claude", name, "x", ""); res.Class != fault.Denied {
				t.Errorf("%s: %+v", name, res)
			}
		}
		if res := b.got("refused", "claude", "nothing", "x", ""); res.Class != fault.NotFound {
			t.Errorf("an unknown tool: %+v", res)
		}
		for tool, n := range b.calls {
			t.Errorf("%s was called %d times", tool, n)
		}
		var n int
		b.count(&n, "SELECT count(*) FROM audit WHERE entry LIKE '%call.refused%'")
		if n != 6 {
			t.Errorf("%d refusals are recorded", n)
		}
	})
}

func (b *bench) count(n *int, query string) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error { return q.QueryRow(ctx, query).Scan(n) })
	if err != nil {
		b.t.Fatal(err)
	}
}

var _ Auditor = (*audit.Audit)(nil)

func TestOffersAreTheToolsOfWhichSomethingWasGranted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add("a")
		for rules, want := range map[string]string{
			"allow memory.write:home":                  "note,slow",
			"allow memory.read;allow net.fetch":        "look,post",
			"ask memory.read:x":                        "look",
			"allow memory.read;deny memory.read":       "",
			"allow shell.exec;allow tool":              "",
			"allow time.read":                          "",
			"allow memory.read:a;deny memory.read:b":   "look",
			"allow memory.write;allow memory.read:x/y": "look,note,slow",
		} {
			b.may("a", strings.Split(rules, ";")...)
			list, err := b.Offers(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, o := range list {
				names = append(names, o.Name)
				if o.Name == "look" && (!o.ReadOnly || o.Destructive || !o.Repeatable) || o.Name == "note" && (o.ReadOnly || o.Repeatable) {
					t.Errorf("%+v", o)
				}
			}
			slices.Sort(names)
			if got := strings.Join(names, ","); got != want {
				t.Errorf("with %q: %s, want %s", rules, got, want)
			}
		}
	})
}

func TestTheSameKeyIsTheSameCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		b.add("a", "allow memory.write")
		b.add("b", "allow memory.write")
		first := b.got("ok", "a", "note", "x", "s:1")
		if first.Text != "note done" || first.Duplicate || first.RunID == "" {
			t.Errorf("%+v", first)
		}
		again := b.got("ok", "a", "note", "x", "s:1")
		if !again.Duplicate || again.RunID != first.RunID {
			t.Errorf("%+v", again)
		}
		if _, err := b.call("a", "note", "y", "s:1"); !fault.Is(err, fault.Conflict) {
			t.Errorf("another call under the key: %v", err)
		}
		if other := b.got("ok", "b", "note", "x", "s:1"); other.Duplicate {
			t.Error("a key of another client counts")
		}
		b.got("ok", "a", "note", "x", "s:2") // it was answered: this is a new one
		if n := b.called("note"); n != 3 {
			t.Errorf("%d calls", n)
		}
		if _, err := b.call("nobody", "note", "x", ""); !fault.Is(err, fault.Denied) {
			t.Errorf("nobody's call: %v", err)
		}
		if _, err := b.Call(t.Context(), Request{Client: "a", Tool: "note", Input: make([]byte, maxInput+1)}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a long input: %v", err)
		}
	})
}

func TestACallThatWaitsIsAskedForByTheSameCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		b.add("a", "ask memory.write")
		waits := b.got("parked", "a", "note", "x", "k1")
		if waits.Class != fault.Waiting || waits.Approval == "" {
			t.Fatalf("%+v", waits)
		}
		if again := b.got("parked", "a", "note", "x", "k2"); again.RunID != waits.RunID || again.Approval != waits.Approval || !again.Duplicate {
			t.Errorf("asked again: %+v", again)
		}
		if other := b.got("parked", "a", "note", "y", "k3"); other.RunID == waits.RunID {
			t.Error("another call is taken for it")
		}
		b.halt() // the daemon starts anew while it waits
		b.boot()
		if _, err := b.approvals.Resolve(t.Context(), waits.Approval, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		done, err := b.Call(ctx, Request{Client: "a", Tool: "note", Input: json.RawMessage(`{"as":"x"}`), Key: "k4", Wait: 20 * time.Second})
		if err != nil || done.Status != "ok" || done.RunID != waits.RunID || done.Text != "note done" {
			t.Fatalf("%+v, %v", done, err)
		}
		if n := b.called("note"); n != 1 {
			t.Errorf("%d calls", n)
		}
		fresh := b.got("parked", "a", "note", "x", "k5") // it was answered: a person is asked about the next
		if fresh.RunID == waits.RunID {
			t.Error("the answer of an old call is given for a new one")
		}
		if _, err := b.approvals.Resolve(t.Context(), fresh.Approval, approval.Reply{Decision: approval.Deny, Note: "no"}, "operator"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Runs.Wait(ctx, fresh.RunID); err != nil {
			t.Fatal(err)
		}
		if no := b.got("refused", "a", "note", "x", "k6"); no.RunID != fresh.RunID || no.Class != fault.Denied {
			t.Errorf("%+v", no)
		}
	})
}

// A call waits as long as its question is open, and not only for the time a conversation
// would be kept waiting.
func TestACallWaitsAsLongAsItsQuestionIsOpen(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, func(o *approval.Options) { o.Hold = time.Millisecond })
		b.add("a", "ask memory.write")
		waits := b.got("parked", "a", "note", "x", "k1")
		b.halt()
		b.boot() // it is looked at again, and its time is over
		if again := b.got("parked", "a", "note", "x", "k2"); again.RunID != waits.RunID {
			t.Errorf("%+v", again)
		}
		if rec, _, err := b.Runs.Get(t.Context(), waits.RunID); err != nil || rec.State != run.Waiting {
			t.Errorf("it is %s, %v", rec.State, err)
		}
		if _, err := b.approvals.Resolve(t.Context(), waits.Approval, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Runs.Wait(t.Context(), waits.RunID); err != nil {
			t.Fatal(err)
		}
		b.got("ok", "a", "note", "x", "k3")
	})
}

func TestWhatAClientTellsOthersAsks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add("a", "allow net.fetch")
		if res := b.got("parked", "a", "post", "x", ""); res.Class != fault.Waiting {
			t.Errorf("%+v", res)
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		token := b.add("a", "ask memory.write")
		other := b.add("b")
		if name, err := b.Verify(ctx, token); name != "a" || err != nil {
			t.Fatal(name, err)
		}
		lent, err := b.Lend(ctx, "a")
		if err != nil || lent == token {
			t.Fatal(err)
		}
		if name, err := b.Verify(ctx, lent); name != "a" || err != nil {
			t.Error("lent:", name, err)
		}
		_, secret, _ := strings.Cut(other, ".")
		wrong := []string{
			"", "a", "a.", "a." + secret, "b." + strings.TrimPrefix(lent, "a."), token + "0", strings.ToUpper(token), "A" + token[1:],
			"a." + strings.Repeat("0", 64), "nobody." + secret, token[:len(token)-1] + string('0'+(token[len(token)-1]+1)%10),
		}
		for _, x := range wrong {
			if name, err := b.Verify(ctx, x); name != "" || err == nil || err.Error() != errToken.Error() {
				t.Errorf("%q is %q, %v", x, name, err)
			}
		}
		waits := b.got("parked", "a", "note", "x", "k")
		if err := New(b.Deps).Remove(ctx, "a", "operator", nil); err != nil { // by another process, which has lent nothing
			t.Fatal(err)
		}
		for _, x := range []string{token, lent} {
			if _, err := b.Verify(ctx, x); !fault.Is(err, fault.Denied) || err.Error() != errToken.Error() {
				t.Errorf("after removal: %v", err)
			}
		}
		rec, err := b.Runs.Wait(ctx, waits.RunID)
		if err != nil || rec.State != run.Cancelled {
			t.Errorf("what it waited for is %s, %v", rec.State, err)
		}
		if a, err := b.approvals.Get(ctx, waits.Approval); err != nil || a.State == approval.Pending {
			t.Errorf("the question is %s, %v", a.State, err)
		}
		if err := b.Remove(ctx, "a", "operator", nil); !fault.Is(err, fault.NotFound) {
			t.Error("removed twice:", err)
		}
		if _, err := b.Lend(ctx, "a"); !fault.Is(err, fault.NotFound) {
			t.Error("lent a client that is not there:", err)
		}
		fresh := b.add("a")
		if _, err := b.Verify(ctx, token); err == nil || fresh == token {
			t.Error("the old token opens the new client")
		}
		if _, _, err := b.Add(ctx, "a", "operator"); !fault.Is(err, fault.Conflict) {
			t.Error("added twice:", err)
		}
		for _, name := range []string{"", "A", "a b", "a.b", strings.Repeat("a", 33), "mcp:a"} {
			if _, _, err := b.Add(ctx, name, "operator"); !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
		list, err := b.List(ctx)
		if err != nil || len(list) != 2 || list[0].Subject() != "mcp:a" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestWhoeverStopsWaitingStopsNoCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		b.add("a", "allow memory.write")
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := b.Call(ctx, Request{Client: "a", Tool: "slow", Input: json.RawMessage(`{"as":"x"}`), Key: "k"})
			gone <- err
		}()
		for b.called("slow") == 0 {
			<-time.After(time.Millisecond)
		}
		cancel()
		if err := <-gone; err == nil {
			t.Fatal("it was waited for")
		}
		close(b.gate)
		if res := b.got("ok", "a", "slow", "x", "k"); res.Text != "slow done" || !res.Duplicate {
			t.Errorf("%+v", res)
		}
		if n := b.called("slow"); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestFiftyClientsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bench) {
		const clients, calls = 50, 2
		var all sync.WaitGroup
		for i := range clients {
			name := fmt.Sprintf("c%d", i)
			token := b.add(name, "allow memory.write:"+name)
			all.Go(func() {
				for k := range calls {
					got, err := b.Verify(t.Context(), token)
					if err != nil || got != name {
						t.Errorf("%s is %s, %v", name, got, err)
						return
					}
					res, err := b.Call(t.Context(), Request{Client: name, Tool: "note", Input: json.RawMessage(`{"as":"` + name + `"}`), Key: fmt.Sprint(k)})
					if err != nil || res.Status != "ok" {
						t.Errorf("%s: %+v, %v", name, res, err)
					}
				}
			})
		}
		all.Wait()
		if n := b.called("note"); n != clients*calls {
			t.Errorf("%d calls", n)
		}
	})
}

func TestOneClientHasSoMuchUnderWay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		b.add("a", "ask memory.write", "allow memory.read")
		for range maxBusy {
			if _, err := b.enter("a"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.call("a", "look", "x", ""); !fault.Is(err, fault.Unavailable) {
			t.Errorf("one more: %v", err)
		}
		b.busy = map[string]int{}
		for i := range maxWaits {
			b.got("parked", "a", "note", fmt.Sprintf("x%d", i), "")
		}
		if _, err := b.call("a", "note", "more", ""); !fault.Is(err, fault.Unavailable) {
			t.Errorf("one question more: %v", err)
		}
		b.got("parked", "a", "note", "x7", "") // what it asked before is answered
	})
}

// No sequence of requests of one client reaches a tool that was not granted to it.
func TestNothingReachesWhatIsNotGranted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		serial := 0
		rapid.Check(t, func(rt *rapid.T) {
			serial++
			name := fmt.Sprintf("p%d", serial)
			b.add(name)
			b.mu.Lock()
			b.calls = map[string]int{}
			b.mu.Unlock()
			may := map[string]bool{}
			want := map[string]int{}
			for range rapid.IntRange(1, 8).Draw(rt, "steps") {
				tool := rapid.SampledFrom([]string{"note", "look", "shell", "own.secretly", "own.lent", "own.only", "own_only", "Note"}).Draw(rt, "tool")
				as := rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "as")
				switch rapid.IntRange(0, 2).Draw(rt, "what") {
				case 0:
					scope := map[string]string{"note": "memory.write:", "look": "memory.read:"}[tool]
					if scope != "" {
						may[tool+as] = !may[tool+as]
						var rules []string
						for key, is := range may {
							if is {
								rules = append(rules, "allow "+map[byte]string{'n': "memory.write:", 'l': "memory.read:"}[key[0]]+key[4:])
							}
						}
						b.may(name, rules...)
					}
				default:
					res, err := b.call(name, tool, as, "")
					if err != nil {
						rt.Fatal(err)
					}
					if may[tool+as] {
						want[tool]++
					}
					if (res.Status == "ok") != may[tool+as] {
						rt.Fatalf("%s %s, granted %v: %s %s", tool, as, may[tool+as], res.Status, res.Text)
					}
				}
			}
			for tool, n := range b.calls {
				if n != want[tool] {
					rt.Fatalf("%s was called %d times, of which %d were granted", tool, n, want[tool])
				}
			}
		})
	})
}

func FuzzAnExampleIsJSON(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":3}}}`, `{"enum":[1]}`, `{"type":"array","items":{"type":"array"}}`,
		`{"type":["string","null"]}`, `{"required":["a","b"]}`, `[]`, ``, `{"type":"integer","minimum":1e400}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if got := example(json.RawMessage(schema)); got != nil && !json.Valid(got) {
			t.Errorf("%s", got)
		}
	})
}
