package bench

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/channel/local"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/model/builtin"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// stepsKind is a run that does nothing but steps.
const stepsKind = "bench.steps"

// parts are a daemon's parts on one store, without its socket.
type parts struct {
	dir    string
	db     *db.DB
	vault  *vault.Vault
	events *eventlog.Log
	audit  *audit.Audit
	runs   *run.Engine
	agents *agent.Agents
	act    *act.Act
	tools  *tool.Registry
	steps  chan func(ctx context.Context, r *run.Run) error // what the next steps run does
}

// open starts the parts on a fresh store. SQLite lies in dir, PostgreSQL in a
// cluster of its own.
func open(b *testing.B, kind dbtest.Kind) *parts {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	p := &parts{dir: b.TempDir(), steps: make(chan func(context.Context, *run.Run) error, 64)}
	dsn := "sqlite:" + filepath.Join(p.dir, "ombud.db")
	if kind != dbtest.KindSQLite {
		dsn = dbtest.DSN(b, kind)
	}
	var err error
	p.db, err = db.Open(b.Context(), db.Options{DSN: dsn, LockFile: filepath.Join(p.dir, "lock")})
	must(err)
	p.vault, err = vault.OpenKeyFile(filepath.Join(p.dir, "key"))
	must(err)
	log := slog.New(slog.DiscardHandler)
	p.events = eventlog.NewLog(p.db, p.vault, log, eventlog.Options{})
	kinds := run.NewKinds()
	p.runs = run.New(p.db, p.vault, p.events, kinds, run.Options{Grace: time.Second})
	p.audit = audit.New(p.db, p.vault, p.runs.Node(), log)
	channels := outbox.NewSenders()
	must(channels.AddTx(local.Name, local.Channel{}))
	box := outbox.New(p.db, p.vault, p.events, channels, outbox.Options{})
	approvals := approval.New(p.db, p.vault, p.events, approval.Options{
		OnResolved: func(context.Context, *db.Tx, approval.Approval) error { return nil },
	})
	spend := budget.New(p.db, budget.Config{})
	registry, invoker := tool.NewRegistry(log)
	door := act.New(act.Deps{
		DB: p.db, Vault: p.vault, Log: p.events, Audit: p.audit, Tools: registry, Invoker: invoker, Approvals: approvals,
		Budget: spend, Blobs: blob.New(p.db, p.vault),
	})
	p.act, p.tools = door, registry
	prices, err := model.NewCatalog()
	must(err)
	p.agents, err = agent.New(agent.Deps{
		DB: p.db, Vault: p.vault, Log: p.events, Runs: p.runs, Act: door, Tools: registry, Approvals: approvals, Budget: spend,
		Outbox: box, Memory: recall{memory.NewMemory(p.db, p.vault, p.events, memory.Options{})}, Models: answers{agent.Model{Provider: builtin.New(time.Now)}}, Prices: prices,
	}, agent.Config{}, mainAgent(b))
	must(err)
	must(kinds.Add(run.Kind{Name: stepsKind, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		return nil, (<-p.steps)(ctx, r)
	}}))
	for _, k := range p.agents.Kinds() {
		must(kinds.Add(k))
	}
	for _, start := range []func(context.Context) error{p.audit.Start, approvals.Start, box.Start, p.runs.Open} {
		must(start(b.Context()))
	}
	b.Cleanup(func() {
		ctx := context.Background()
		if err := p.runs.Stop(ctx); err != nil {
			b.Error(err)
		}
		box.Stop()
		approvals.Stop()
		for _, stop := range []func(context.Context) error{door.Stop, p.audit.Stop} {
			if err := stop(ctx); err != nil {
				b.Error(err)
			}
		}
		if err := p.db.Close(); err != nil {
			b.Error(err)
		}
	})
	return p
}

// answers is a model that answers at once.
type answers struct{ model agent.Model }

func (a answers) For(string) agent.Model { return a.model }

// recall lets a turn look into memory as in a daemon.
type recall struct{ m *memory.Memory }

func (r recall) RecallFor(ctx context.Context, who, text string, limit int) ([]agent.Fact, string, error) {
	found, err := r.m.Recall(ctx, who, text, limit)
	var out []agent.Fact
	for _, h := range found.Hits {
		out = append(out, agent.Fact{Text: h.Text, Label: h.Label})
	}
	return out, "", err
}

func mainAgent(b *testing.B) agent.Identity {
	b.Helper()
	roles, err := policy.LoadRoles(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	role, err := roles.Get(policy.RoleAssistant)
	if err != nil {
		b.Fatal(err)
	}
	level, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		b.Fatal(err)
	}
	return agent.Identity{Name: agent.Default, Role: role, Grants: role.Grants("agent:" + agent.Default), Autonomy: level}
}
