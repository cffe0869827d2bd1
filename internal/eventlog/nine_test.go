package eventlog

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// TestNineSubscriptionsCostFarFewerThanNineCommitsAnEvent counts the transactions of the
// store while nine subscriptions each write a row for every event, which come one by one
// from several appenders.
func TestNineSubscriptionsCostFarFewerThanNineCommitsAnEvent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		const subscriptions, appenders, each = 9, 8, 60
		l := NewLog(d, newVault(t), nil, Options{Poll: 20 * time.Millisecond})
		var handled atomic.Int64
		var subs []Subscription
		for i := range subscriptions {
			subs = append(subs, Subscription{Name: fmt.Sprint("s", i), Handle: func(ctx context.Context, tx *db.Tx, e Event) error {
				_, err := tx.Exec(ctx, `INSERT INTO meta (key, value) VALUES ($1, '')`, fmt.Sprintf("nine/%d/%s", i, e.ID))
				tx.AfterCommit(func() { handled.Add(1) })
				return err
			}})
		}
		if err := l.Start(t.Context(), subs...); err != nil {
			t.Fatal(err)
		}
		defer l.Stop()
		before := d.Stats().Batches
		done := make(chan error, appenders)
		for a := range appenders {
			go func() {
				var err error
				for i := 0; i < each && err == nil; i++ {
					_, err = l.Append(context.Background(), ev(fmt.Sprintf("%d-%d", a, i), fmt.Sprint("stream", a)))
				}
				done <- err
			}()
		}
		for range appenders {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		const events = appenders * each
		for deadline := time.Now().Add(time.Minute); handled.Load() < subscriptions*events; {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d handled", handled.Load(), subscriptions*events)
			}
			<-time.After(5 * time.Millisecond)
		}
		if n := d.Stats().Batches - before; n > 2*events {
			t.Errorf("%d commits for %d events: %.1f each", n, events, float64(n)/events)
		} else {
			t.Logf("%d commits for %d events: %.2f each", n, events, float64(n)/events)
		}
	})
}
