package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := New(d)
		var mu sync.Mutex
		var held []Lease
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				got, err := l.Acquire(t.Context(), "n", fmt.Sprint("owner", i), time.Hour)
				switch {
				case err == nil:
					mu.Lock()
					held = append(held, got)
					mu.Unlock()
				case !fault.Is(err, fault.Conflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(held) != 1 {
			t.Fatalf("holders %v", held)
		}
		if _, err := l.Acquire(t.Context(), "n", held[0].Owner, time.Hour); !fault.Is(err, fault.Conflict) {
			t.Errorf("acquired again by its holder: %v", err)
		}
		longer, err := l.Renew(t.Context(), held[0], 2*time.Hour)
		if err != nil || longer.Fence != held[0].Fence || longer.Expires <= held[0].Expires {
			t.Errorf("renewed: %+v, %v", longer, err)
		}
		if same, err := l.Renew(t.Context(), held[0], time.Second); err != nil || same.Expires != longer.Expires {
			t.Errorf("renewing took time away: %+v, %v", same, err)
		}
		if h, err := l.Holder(t.Context(), "n"); h != longer || err != nil {
			t.Errorf("holder %+v, %v", h, err)
		}
		if err := l.Release(t.Context(), longer); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context(), longer); !fault.Is(err, fault.Conflict) {
			t.Errorf("released twice: %v", err)
		}
		if _, err := l.Holder(t.Context(), "n"); !fault.Is(err, fault.NotFound) {
			t.Errorf("holder of a free lease: %v", err)
		}
		again, err := l.Acquire(t.Context(), "n", "other", time.Hour)
		if err != nil || again.Fence <= longer.Fence {
			t.Errorf("%+v after fence %d, %v", again, longer.Fence, err)
		}
	})
}

// On PostgreSQL the clock is the server's, so this waits for a real, short end.
func TestLapsedLeaseIsLostToItsHolder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := New(d)
		old, err := l.Acquire(t.Context(), "n", "slow", 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		var taken Lease
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for taken.Name == "" {
			<-tick.C
			taken, err = l.Acquire(t.Context(), "n", "next", time.Hour)
			if err != nil && !fault.Is(err, fault.Conflict) {
				t.Fatal(err)
			}
		}
		if taken.Fence <= old.Fence {
			t.Errorf("fence %d after %d", taken.Fence, old.Fence)
		}
		if _, err := l.Renew(t.Context(), old, time.Hour); !fault.Is(err, fault.Conflict) {
			t.Errorf("renewed a lost lease: %v", err)
		}
		if err := l.Release(t.Context(), old); !fault.Is(err, fault.Conflict) {
			t.Errorf("released a lost lease: %v", err)
		}
		write := func(held Lease) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `INSERT INTO meta (key, value) VALUES ($1, '')`, held.Owner); err != nil {
					return err
				}
				return l.CheckTx(ctx, tx, held)
			})
		}
		if err := write(old); !fault.Is(err, fault.Conflict) {
			t.Errorf("wrote under a lost lease: %v", err)
		}
		if err := write(taken); err != nil {
			t.Errorf("wrote under a held lease: %v", err)
		}
		var who string
		err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, `SELECT key FROM meta WHERE value = ''`).Scan(&who)
		})
		if who != "next" || err != nil {
			t.Errorf("the row is %q's, %v", who, err)
		}
	})
}

func TestUnusableRequestsAreRefused(t *testing.T) {
	t.Parallel()
	l := New(dbtest.SQLite(t))
	for _, c := range []struct {
		name, owner string
		ttl         time.Duration
	}{{"", "o", time.Hour}, {"n", "", time.Hour}, {"n", "o", 0}, {"n", "o", -time.Hour}, {"ombud.active", "o", time.Hour}} {
		if _, err := l.Acquire(t.Context(), c.name, c.owner, c.ttl); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestLeasesBehaveLikeTheirModel plays random owners against a plain model.
func TestLeasesBehaveLikeTheirModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var us atomic.Int64
		us.Store(1)
		o := dbtest.Options(t, dbtest.KindSQLite)
		o.Now = func() time.Time { return time.UnixMicro(us.Load()) }
		d, err := db.Open(t.Context(), o)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		l := New(d)
		model := map[string]Lease{} // what the store should hold
		var all []Lease             // everything ever given out
		var fence int64
		lives := func(h Lease) bool {
			m, ok := model[h.Name]
			return ok && m.Fence == h.Fence && m.Expires > us.Load()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) { us.Add(rapid.Int64Range(0, 30).Draw(t, "us")) },
			"acquire": func(rt *rapid.T) {
				name, ttl := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name"), rapid.Int64Range(1, 40).Draw(rt, "ttl")
				m, ok := model[name]
				free := !ok || m.Expires <= us.Load()
				got, err := l.Acquire(t.Context(), name, "o", time.Duration(ttl)*time.Microsecond)
				if free != (err == nil) || err != nil && !fault.Is(err, fault.Conflict) {
					rt.Fatalf("free %v: %v", free, err)
				}
				if err == nil {
					if got.Fence <= fence || got.Expires != us.Load()+ttl {
						rt.Fatalf("%+v after fence %d at %d", got, fence, us.Load())
					}
					fence, model[name] = got.Fence, got
					all = append(all, got)
				}
			},
			"renew": func(rt *rapid.T) {
				if len(all) == 0 {
					rt.Skip("nothing was ever held")
				}
				h, ttl := rapid.SampledFrom(all).Draw(rt, "lease"), rapid.Int64Range(1, 40).Draw(rt, "ttl")
				want := lives(h)
				got, err := l.Renew(t.Context(), h, time.Duration(ttl)*time.Microsecond)
				if want != (err == nil) {
					rt.Fatalf("lives %v: %v", want, err)
				}
				if err == nil {
					h.Expires = max(model[h.Name].Expires, us.Load()+ttl)
					if got != h {
						rt.Fatalf("%+v, want %+v", got, h)
					}
					model[h.Name] = h
				}
			},
			"release": func(rt *rapid.T) {
				if len(all) == 0 {
					rt.Skip("nothing was ever held")
				}
				h := rapid.SampledFrom(all).Draw(rt, "lease")
				m, ok := model[h.Name]
				want := ok && m.Fence == h.Fence
				if err := l.Release(t.Context(), h); want != (err == nil) {
					rt.Fatalf("held %v: %v", want, err)
				}
				if want {
					delete(model, h.Name)
				}
			},
		})
	})
}
