package bench

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/httpd"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

// BenchmarkWebhook is a call of a webhook over HTTP until it is acknowledged: a row, an
// event and a run on disk. 200 calls a second come in, whether the last were answered or
// not, and the runs they start are done meanwhile.
func BenchmarkWebhook(b *testing.B) {
	const perSecond, perRound = 200, 200
	d := dbtest.Open(b, db.Options{DSN: "sqlite:" + b.TempDir() + "/store.db"})
	disk := newProbe(b, b.TempDir())
	url := webhooks(b, d)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	n := 0
	round := func() []float64 {
		var mu sync.Mutex
		var took []float64
		var wg sync.WaitGroup
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for range perRound {
			<-tick.C
			n++
			body := fmt.Sprintf(`{"n":%d,"text":%q}`, n, strings.Repeat("x", 1024))
			mac := hmac.New(sha256.New, []byte(hookSecret))
			mac.Write([]byte(body))
			wg.Go(func() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("X-Signature-256", hex.EncodeToString(mac.Sum(nil)))
				start := time.Now()
				res, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_ = res.Body.Close() // its status is all that counts
				if res.StatusCode != http.StatusOK {
					b.Error(res.Status)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, micro(time.Since(start)))
			})
		}
		wg.Wait()
		slices.Sort(took)
		return took
	}
	at := func(q float64) func() (float64, int) {
		return func() (float64, int) {
			took := round()
			return took[int(q*float64(len(took)-1))], 0
		}
	}
	f := figure{name: "webhook → durable ack at 200/s, p50", unit: "µs", peer: "raw fsync, µs", note: "runs go on meanwhile"}
	measure(b, f, disk.once, at(0.5))
	f.name = "webhook → durable ack at 200/s, p99"
	measure(b, f, disk.once, at(0.99))
}

const hookSecret = "a secret that signs webhooks"

// unaudited keeps no record of the secret that is set.
type unaudited struct{}

func (unaudited) AppendTx(context.Context, *db.Tx, audit.Entry) (audit.Ref, error) {
	return audit.Ref{}, nil
}

// webhooks serves one signed webhook on d and returns its URL.
func webhooks(b *testing.B, d *db.DB) string {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	v, err := vault.New(make([]byte, vault.KeySize))
	must(err)
	log := eventlog.NewLog(d, v, nil, eventlog.Options{})
	kinds := run.NewKinds()
	must(kinds.Add(run.Kind{Name: "noop", Handle: func(context.Context, *run.Run) ([]byte, error) { return nil, nil }}))
	runs := run.New(d, v, log, kinds, run.Options{})
	times := schedule.New(d, v, log, runs, nil, schedule.Options{})
	hide := redact.New()
	secrets := secret.New(d, v, log, unaudited{}, hide)
	_, err = secrets.Set(b.Context(), secret.Setting{Name: "hook", Value: []byte(hookSecret)}, secret.ByOperator)
	must(err)
	triggers := trigger.New(d, v, log, runs, times, trigger.Options{Secrets: secrets, PerMinute: 600_000})
	must(d.InTx(b.Context(), func(ctx context.Context, tx *db.Tx) error {
		return triggers.ReplaceTx(ctx, tx, "bench", []trigger.Target{{Name: "bench:x", RunKind: "noop", On: []trigger.On{{
			Webhook: &trigger.Webhook{Path: "x", Scheme: trigger.Generic, Secrets: []string{"hook"}},
		}}}})
	}))
	s := httpd.New(httpd.Config{Address: netip.MustParseAddrPort("127.0.0.1:0")}, httpd.Deps{Hide: hide})
	s.Mount(trigger.HooksPath, triggers)
	ctx := context.WithoutCancel(b.Context())
	must(runs.Open(ctx))
	must(log.Start(ctx, triggers.Subscription()))
	must(s.Start(ctx))
	b.Cleanup(func() {
		must(s.Stop(ctx))
		log.Stop()
		must(runs.Stop(ctx))
	})
	return s.State().URL() + trigger.HooksPath + "x"
}
