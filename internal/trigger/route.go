package trigger

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Route is a webhook as it stands. Times are Unix microseconds, 0 for never.
type Route struct {
	Webhook
	Target    string
	Accepted  int64
	Repeated  int64 // calls that had been taken before
	Refused   int64
	SeenAt    int64 // the last that was accepted
	RefusedAt int64
	Refusal   string // why the last was refused
	Missing   []string
}

// routesTx takes the paths that no target of an owner has any more away from it.
func (t *Triggers) routesTx(ctx context.Context, tx *db.Tx, owner string, targets []Target) error {
	wanted := map[string]string{}
	for _, x := range targets {
		for _, w := range x.webhooks() {
			if other, taken := wanted[w.Path]; taken {
				return twice(w.Path, other, x.Name)
			}
			wanted[w.Path] = x.Name
		}
	}
	have, err := t.query(ctx, tx, "WHERE owner = $1", owner)
	if err != nil {
		return err
	}
	for _, old := range have {
		paths, err := db.All(ctx, tx, db.Column[string], "SELECT path FROM routes WHERE target = $1", old.Name)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if wanted[path] == old.Name {
				continue
			}
			if _, err := tx.Exec(ctx, "DELETE FROM routes WHERE path = $1", path); err != nil {
				return err
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		has := wanted[path]
		err := tx.QueryRow(ctx, "SELECT target FROM routes WHERE path = $1", path).Scan(&has) // first: an owner that says the same again costs no write
		if errors.Is(err, sql.ErrNoRows) {
			_, err = tx.Exec(ctx, `INSERT INTO routes (path, target, accepted, repeated, refused, seen_at, refused_at, refusal)
				VALUES ($1, $2, 0, 0, 0, 0, 0, '')`, path, has)
		}
		if err != nil {
			return err
		}
		if has != wanted[path] {
			return twice(path, has, wanted[path])
		}
	}
	return nil
}

func twice(path, one, other string) error {
	if one == other {
		return fault.New(fault.Invalid, "%s has the webhook %s%s twice", one, HooksPath, path)
	}
	return fault.New(fault.Invalid, "%s and %s have the same webhook, %s%s", one, other, HooksPath, path)
}

func (x *Target) webhooks() (out []Webhook) {
	for _, on := range x.On {
		if on.Webhook != nil {
			out = append(out, *on.Webhook)
		}
	}
	return out
}

// routeOf finds what a path starts; NotFound if nothing.
func (t *Triggers) routeOf(ctx context.Context, q db.Q, path string) (s Standing, w Webhook, err error) {
	var target string
	err = q.QueryRow(ctx, "SELECT target FROM routes WHERE path = $1", path).Scan(&target)
	if errors.Is(err, sql.ErrNoRows) {
		return s, w, errNoRoute
	}
	if err != nil {
		return s, w, err
	}
	if s, err = t.GetIn(ctx, q, target); err != nil {
		return s, w, err
	}
	if s.Problem != nil {
		return s, w, s.Problem
	}
	for _, w := range s.webhooks() {
		if w.Path == path {
			return s, w, nil
		}
	}
	return s, w, errNoRoute
}

var errNoRoute = fault.New(fault.NotFound, "there is nothing here")

// Routes returns every webhook by path, with the secrets that are missing. It writes
// nothing, so that a store that cannot be written is still told of.
func (t *Triggers) Routes(ctx context.Context) (out []Route, err error) {
	err = t.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (x Route, err error) {
			err = r.Scan(&x.Path, &x.Target, &x.Accepted, &x.Repeated, &x.Refused, &x.SeenAt, &x.RefusedAt, &x.Refusal)
			return x, err
		}, "SELECT path, target, accepted, repeated, refused, seen_at, refused_at, refusal FROM routes ORDER BY path")
		for i := range out {
			if _, w, err := t.routeOf(ctx, q, out[i].Path); err == nil {
				out[i].Webhook = w
			}
		}
		return err
	})
	for i := range out {
		if x := t.refusals.of(out[i].Path); x.n > 0 {
			out[i].Refused, out[i].RefusedAt, out[i].Refusal = out[i].Refused+x.n, x.at, x.why
		}
		for _, name := range out[i].Secrets {
			if err := t.opt.Secrets.Check(ctx, name); err != nil {
				out[i].Missing = append(out[i].Missing, name)
			}
		}
	}
	return out, err
}

// refusals are the calls that were refused, not yet written.
type refusals struct {
	mu sync.Mutex
	m  map[string]refusal
}

type refusal struct {
	n   int64
	at  int64
	why string
}

func (r *refusals) add(path string, at int64, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]refusal{}
	}
	r.m[path] = refusal{r.m[path].n + 1, at, why}
}

func (r *refusals) take() map[string]refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.m
	r.m = nil
	return out
}

// giveBack returns what was taken and not written.
func (r *refusals) giveBack(m map[string]refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]refusal{}
	}
	for path, x := range m {
		if later := r.m[path]; later.n > 0 {
			x = refusal{x.n + later.n, later.at, later.why}
		}
		r.m[path] = x
	}
}

func (r *refusals) of(path string) refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m[path]
}

// FlushRefusals writes what was refused since the last time. What cannot be written is
// kept for the next.
func (t *Triggers) FlushRefusals(ctx context.Context) error {
	m := t.refusals.take()
	if len(m) == 0 {
		return nil
	}
	err := t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, path := range slices.Sorted(maps.Keys(m)) {
			_, err := tx.Exec(ctx, "UPDATE routes SET refused = refused + $1, refused_at = $2, refusal = $3 WHERE path = $4", m[path].n, m[path].at, m[path].why, path)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.refusals.giveBack(m)
	}
	return err
}

// pruned is how many rows Prune removes in one commit: a writer that waits waits no longer.
const pruned = 1000

// Prune forgets the calls and the chains that are older than they are remembered.
func (t *Triggers) Prune(ctx context.Context) error {
	for _, x := range []struct{ table, key string }{{"hooks", "id"}, {"cascades", "root"}} {
		for more := true; more; {
			err := t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				n, err := tx.Exec(ctx, "DELETE FROM "+x.table+" WHERE "+x.key+" IN (SELECT "+x.key+" FROM "+x.table+" WHERE at < $1 ORDER BY at LIMIT $2)",
					tx.Now()-remembered.Microseconds(), int64(pruned))
				more = n == pruned
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
