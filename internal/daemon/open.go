package daemon

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/channel/local"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/grant"
	"github.com/ombud-run/ombud/internal/hold"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/mcp/asks"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
)

// open constructs every part, lowest floor first. Nothing runs yet but the store.
func open(ctx context.Context, o Options, t turn) (_ *Daemon, err error) {
	o, hide := hiding(o)
	defer func() { err = hide.Error(err) }()
	d := &Daemon{o: o, log: o.Logger, hide: hide, began: time.Now(), asked: make(chan struct{}), seat: t.seat, awaited: t.standby}
	if err := o.Instance.MakeDirs(); err != nil {
		return nil, err
	}
	so := storeOptions(o)
	so.Seat, so.HoldsLock = t.seat, t.seat != nil
	if d.db, err = openStore(ctx, o, so); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.db.Close())
		}
	}()
	if to, err := d.db.LeftFor(ctx); err != nil {
		return nil, err
	} else if to != "" {
		return nil, errLeft(o.Instance.StateDB(), to)
	}
	if d.keeper, d.vaultNotes, err = openVault(ctx, d.db, o, true); err != nil {
		return nil, err
	}
	d.vault = d.keeper.Vault()
	cfg := o.Config.Config
	d.events = eventlog.NewLog(d.db, d.vault, d.log, eventlog.Options{
		OnDead: func(ctx context.Context, tx *db.Tx, dead eventlog.DeadLetter) error {
			return d.letters.OnDead(ctx, tx, dead)
		},
	})
	kinds := run.NewKinds()
	if d.hold, err = hold.Open(ctx, d.db); err != nil {
		return nil, err
	}
	home, err := homeOf(o.Instance)
	if err != nil {
		return nil, err
	}
	d.runs = run.New(d.db, d.vault, d.events, kinds, run.Options{
		Logger: d.log, Home: home + t.name(), Sole: t.seat != nil, LeaseTTL: 10 * time.Second, Held: d.hold.Held,
	})
	d.audit = audit.New(d.db, d.vault, d.runs.Node(), d.log, audit.Hide(d.hide.String))
	d.openSecrets(ctx)
	if path := cfg.Audit.AnchorFile; path != "" {
		d.anchor = d.audit.Anchor(path)
	}
	d.blobs = blob.New(d.db, d.vault)
	d.budget = budget.New(d.db, budgetConfig(cfg))
	d.memory = memory.NewMemory(d.db, d.vault, d.events, memory.Options{})
	channels := outbox.NewSenders()
	if err := channels.AddTx(local.Name, local.Channel{}); err != nil {
		return nil, err
	}
	d.outbox = outbox.New(d.db, d.vault, d.events, channels, outbox.Options{Logger: d.log, Held: d.hold.Held, OnTrouble: d.undelivered})
	d.approvals = approval.New(d.db, d.vault, d.events, approval.Options{
		Hold: cfg.Approvals.Hold, Expires: cfg.Approvals.Expires, Hide: d.hide, Logger: d.log,
		OnAsked: d.askInChat, OnApproving: d.approving, OnResolved: d.resolved,
	})
	d.grants = grant.NewGrants(d.db, d.vault, d.events, d.audit, policy.Assisted)
	if err := d.openConfine(cfg); err != nil {
		return nil, err
	}
	d.openCheckpoints()
	if err := kinds.Add(d.undoRuns()); err != nil {
		return nil, err
	}
	if err := d.openDelegate(cfg, home); err != nil {
		return nil, err
	}
	var invoker *tool.Invoker
	d.tools, invoker = tool.NewRegistry(d.log)
	d.mcpAsks = asks.New(&d.asksDeps)
	if err := errors.Join(d.addTools(cfg), d.mcpAsks.Register(d.tools), d.openProcesses(ctx, kinds), d.openServers(ctx), d.checkListedTools(cfg)); err != nil {
		return nil, err
	}
	d.act = act.New(act.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Tools: d.tools, Invoker: invoker,
		Approvals: d.approvals, Budget: d.budget, Blobs: d.blobs, Keeper: d.checkpoints, Hide: d.hide, Secrets: d.secrets, Logger: d.log,
	})
	if d.prices, err = priceTable(cfg); err != nil {
		return nil, err
	}
	if d.models, err = chooseModels(ctx, cfg, o.Environment, d.secrets, d.log); err != nil {
		return nil, err
	}
	if err := d.openAgents(cfg, kinds); err != nil {
		return nil, err
	}
	d.openLetters()
	if err := d.openTiers(kinds, channels); err != nil {
		return nil, err
	}
	if err := d.openLoops(cfg, kinds); err != nil {
		return nil, err
	}
	if err := d.fillDelegate(kinds); err != nil {
		return nil, err
	}
	if err := d.openSigned(kinds); err != nil {
		return nil, err
	}
	if err := d.openRecipes(cfg, kinds); err != nil {
		return nil, err
	}
	d.openListener()
	d.server = ipc.New(ipc.Config{Socket: o.Instance.Socket(), HoldsLock: true, UID: os.Getuid(), Admit: admitOperator, Hide: d.hide.JSON}, d.mux(), d.log)
	return d, nil
}

func storeOptions(o Options) db.Options {
	dsn := "sqlite:" + o.Instance.StateDB()
	if pg := o.Config.Config.Store.Postgres; pg.Set() {
		dsn = pg.Reveal()
	}
	return db.Options{
		DSN: dsn, LockFile: o.Instance.LockFile(), ReserveFile: o.Instance.ReserveFile(), BackupDir: o.Instance.BackupDir(), Logger: o.Logger,
	}
}

func budgetConfig(cfg config.Config) budget.Config {
	limit := func(l config.Limit) budget.Limit { return budget.Limit{Set: l.Set, MicroUSD: int64(l.Amount)} }
	return budget.Config{
		Instance: budget.Limits{Day: limit(cfg.Budget.Day), Month: limit(cfg.Budget.Month)},
		Run:      limit(cfg.Budget.Turn),
	}
}

func priceTable(cfg config.Config) (*model.Catalog, error) {
	var own []model.Override
	for name, p := range cfg.Models.Prices {
		own = append(own, override(name, p))
	}
	return model.NewCatalog(own...)
}

// openAgents loads the roles and the configured identities. On a fresh install the
// agent main acts by the shipped role assistant.
func (d *Daemon) openAgents(cfg config.Config, kinds *run.Kinds) error {
	var specs []policy.RoleSpec
	for name, r := range cfg.Roles {
		if err := realRules(name, slices.Concat(r.Allow, r.Ask, r.Deny)); err != nil {
			return err
		}
		specs = append(specs, policy.RoleSpec{Name: name, Parent: r.Parent, Allow: r.Allow, Ask: r.Ask, Deny: r.Deny})
	}
	roles, err := policy.LoadRoles(d.workspace(cfg), specs)
	if err != nil {
		return err
	}
	d.roles = roles
	agents := map[string]config.Agent{agent.Default: {Role: policy.RoleAssistant}}
	maps.Copy(agents, cfg.Agents)
	level, err := policy.NewAutonomy(d.grants.Usual(), nil)
	if err != nil {
		return err
	}
	var identities []agent.Identity
	for name, a := range agents {
		role, err := roles.Get(a.Role)
		if err != nil {
			return err
		}
		identities = append(identities, agent.Identity{
			Name: name, Role: role, Grants: role.Grants("agent:" + name), Autonomy: level, Tools: a.Tools, Instructions: a.Instructions,
		})
	}
	d.agents, err = agent.New(agent.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Runs: d.runs, Act: d.act, Tools: d.tools, Approvals: d.approvals, Budget: d.budget,
		Outbox: d.outbox, Memory: recall{d.memory}, Authority: d.grants, Models: d.models, Prices: d.prices, Hide: d.hide, Logger: d.log,
		Refuse: d.hold.Refuse, Places: places{d},
	}, agent.Config{Steps: cfg.Turn.Steps, Calls: cfg.Turn.Calls, Timeout: cfg.Turn.Timeout}, identities...)
	if err != nil {
		return err
	}
	for _, k := range d.agents.Kinds() {
		if err := kinds.Add(k); err != nil {
			return err
		}
	}
	return nil
}

// approving refuses a yes that would come to nothing.
func (d *Daemon) approving(ctx context.Context, tx *db.Tx, a approval.Approval) error {
	return d.jobs.ApprovingTx(ctx, tx, a)
}

// resolved audits a decision and lets what waits for it go on, in the transaction
// of the decision.
func (d *Daemon) resolved(ctx context.Context, tx *db.Tx, a approval.Approval) error {
	_, err := d.audit.AppendTx(ctx, tx, audit.Entry{
		Kind: "approval", Actor: a.Resolver, Subject: a.Subject, Tool: a.Tool, Scopes: a.Scopes, Outcome: string(a.State),
		Run: a.Run, Step: a.Step,
	})
	if err != nil {
		return err
	}
	if ofJob, err := d.jobs.DecidedTx(ctx, tx, a); ofJob || err != nil {
		return err
	}
	if ofKit, err := d.kit.DecidedTx(ctx, tx, a, d.actorOf); ofKit || err != nil {
		return err
	}
	return d.agents.Decided(ctx, tx, a)
}
