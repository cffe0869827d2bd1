package peers

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // DBOS on SQLite

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// engine makes one run of many steps and returns how long each took.
type engine interface {
	steps(b *testing.B, n int) []time.Duration
}

var quiet = slog.New(slog.DiscardHandler)

// ombud is this engine. Values are sealed, as they always are.
type ombud struct {
	runs    *run.Engine
	audit   *audit.Audit // nil: no audit entry with a step
	policy  run.PolicyKind
	pending chan func(context.Context, *run.Run) error
}

const kind = "bench.peers"

func newOmbud(b *testing.B, store dbtest.Kind, policy run.PolicyKind, audited bool) engine {
	b.Helper()
	dir := b.TempDir()
	dsn := "sqlite:" + filepath.Join(dir, "ombud.db")
	if store != dbtest.KindSQLite {
		dsn = dbtest.DSN(b, store)
	}
	d, err := db.Open(b.Context(), db.Options{DSN: dsn, LockFile: filepath.Join(dir, "lock")})
	must(b, err)
	v, err := vault.OpenKeyFile(filepath.Join(dir, "key"))
	must(b, err)
	log := eventlog.NewLog(d, v, quiet, eventlog.Options{})
	kinds := run.NewKinds()
	e := &ombud{runs: run.New(d, v, log, kinds, run.Options{Grace: time.Second}), policy: policy, pending: make(chan func(context.Context, *run.Run) error, 64)}
	a := audit.New(d, v, e.runs.Node(), quiet)
	if audited {
		e.audit = a
	}
	must(b, kinds.Add(run.Kind{Name: kind, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) { return nil, (<-e.pending)(ctx, r) }}))
	must(b, a.Start(b.Context()))
	must(b, e.runs.Open(b.Context()))
	b.Cleanup(func() {
		ctx := context.Background()
		if err := e.runs.Stop(ctx); err != nil {
			b.Error(err)
		}
		if err := a.Stop(ctx); err != nil {
			b.Error(err)
		}
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return e
}

func (e *ombud) steps(b *testing.B, n int) []time.Duration {
	took := make([]time.Duration, 0, n)
	done := make(chan error, 1)
	e.pending <- func(ctx context.Context, r *run.Run) error {
		var failed error
		for i := 0; i < n && failed == nil; i++ {
			start := time.Now()
			_, failed = r.Do(ctx, e.spec(r, i), func(context.Context) run.Outcome { return run.Succeed(json.RawMessage(`{}`)) })
			took = append(took, time.Since(start))
		}
		done <- failed
		return failed
	}
	_, err := e.runs.Start(b.Context(), run.Spec{Kind: kind, Actor: "bench"})
	must(b, err)
	must(b, <-done)
	return took
}

func (e *ombud) spec(r *run.Run, i int) run.StepSpec {
	spec := run.StepSpec{Name: fmt.Sprint("s/", i), Kind: "tool", Policy: run.Policy{Kind: e.policy}}
	if e.audit != nil {
		spec.OnClose = func(ctx context.Context, tx *db.Tx, o *run.Outcome) error {
			ref, err := e.audit.AppendTx(ctx, tx, audit.Entry{Kind: "call", Actor: "bench", Subject: "agent:main", Tool: "bench", Outcome: "ok", Run: r.ID(), Step: spec.Name})
			o.Audit = run.AuditRef(ref)
			return err
		}
	}
	return spec
}

// dbosEngine is DBOS. On SQLite it is given a pool with synchronous=FULL, since its
// own choice, NORMAL, may lose what it acknowledged when the power fails.
type dbosEngine struct{ ctx dbos.Context }

func newDBOS(b *testing.B, store dbtest.Kind) engine {
	b.Helper()
	cfg := dbos.Config{AppName: "bench-peers", Logger: quiet}
	if store == dbtest.KindSQLite {
		path := filepath.Join(b.TempDir(), "dbos.db")
		pool, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate")
		must(b, err)
		cfg.SQLiteSystemDB = pool
		b.Cleanup(func() { _ = pool.Close() })
	} else {
		cfg.DatabaseURL = dbtest.DSN(b, store)
	}
	ctx, err := dbos.NewContext(context.Background(), cfg)
	must(b, err)
	dbos.RegisterWorkflow(ctx, dbosSteps)
	must(b, dbos.Launch(ctx))
	b.Cleanup(func() { _ = dbos.Shutdown(ctx, 10*time.Second) })
	return &dbosEngine{ctx}
}

// shared is where the peers' workflows, which are plain functions, leave their times.
var shared sync.Map // id → []time.Duration

func dbosSteps(ctx dbos.Context, n int) (string, error) {
	took := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (string, error) { return "{}", nil }); err != nil {
			return "", err
		}
		took = append(took, time.Since(start))
	}
	id, err := dbos.GetWorkflowID(ctx)
	shared.Store(id, took)
	return "", err
}

func (e *dbosEngine) steps(b *testing.B, n int) []time.Duration {
	h, err := dbos.RunWorkflow(e.ctx, dbosSteps, n)
	must(b, err)
	_, err = h.GetResult()
	must(b, err)
	took, _ := shared.LoadAndDelete(h.GetWorkflowID())
	return took.([]time.Duration)
}

// goWorkflows is go-workflows on SQLite, whose default is synchronous=FULL.
type goWorkflows struct{ client *client.Client }

func newGoWorkflows(b *testing.B) engine {
	b.Helper()
	be := monoprocess.NewMonoprocessBackend(sqlite.NewSqliteBackend(filepath.Join(b.TempDir(), "wf.db"), sqlite.WithBackendOptions(backend.WithLogger(quiet))))
	opt := worker.DefaultOptions
	opt.SingleWorkerMode = true
	opt.ActivityPollingInterval, opt.WorkflowPollingInterval = time.Millisecond, time.Millisecond
	w := worker.New(be, &opt)
	must(b, w.RegisterWorkflow(wfSteps))
	must(b, w.RegisterActivity(wfStep))
	ctx, cancel := context.WithCancel(context.Background())
	must(b, w.Start(ctx))
	b.Cleanup(func() { cancel(); _ = w.WaitForCompletion(); _ = be.Close() })
	return &goWorkflows{client.New(be)}
}

func wfStep(context.Context) (string, error) { return "{}", nil }

// wfSteps is replayed when it is not in the cache, so only its last pass counts.
func wfSteps(ctx workflow.Context, n int) (string, error) {
	took := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		if _, err := workflow.ExecuteActivity[string](ctx, workflow.DefaultActivityOptions, wfStep).Get(ctx); err != nil {
			return "", err
		}
		took = append(took, time.Since(start))
	}
	shared.Store(workflow.WorkflowInstance(ctx).InstanceID, took)
	return "", nil
}

func (e *goWorkflows) steps(b *testing.B, n int) []time.Duration {
	ctx := context.Background()
	id := fmt.Sprint("wf-", time.Now().UnixNano())
	in, err := e.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: id}, wfSteps, n)
	must(b, err)
	_, err = client.GetWorkflowResult[string](ctx, e.client, in, 10*time.Minute)
	must(b, err)
	took, _ := shared.LoadAndDelete(id)
	return took.([]time.Duration)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
