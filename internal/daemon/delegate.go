package daemon

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/delegate"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

// vendor is what is known of the maker of a program.
type vendor struct {
	variable string   // the program takes its key in
	usual    string   // in which people have that key
	provider string   // in the table of prices
	hosts    []string // of its API
}

var vendors = map[harness.Name]vendor{
	harness.Claude:   {"ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY", "anthropic", []string{"api.anthropic.com", "console.anthropic.com", "platform.claude.com"}},
	harness.Codex:    {"CODEX_API_KEY", "OPENAI_API_KEY", "openai", []string{"api.openai.com", "auth.openai.com", "chatgpt.com"}},
	harness.Gemini:   {"GEMINI_API_KEY", "GEMINI_API_KEY", "gemini", []string{"generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"}},
	harness.OpenCode: {"ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY", "anthropic", []string{"api.anthropic.com", "opencode.ai"}},
	harness.Pi:       {"ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY", "anthropic", []string{"api.anthropic.com"}},
}

// programDirs are where programs are looked for.
func (d *Daemon) programDirs() []string {
	for _, kv := range d.o.Environment.Programs() {
		if list, is := strings.CutPrefix(kv, "PATH="); is {
			return filepath.SplitList(list)
		}
	}
	return nil
}

// harnessesOf are the coding agents of a configuration, in the order in which one is
// chosen: those that are known programs, then the others by name.
func harnessesOf(cfg config.Config, env config.Environment, dirs []string) (out []delegate.Harness) {
	known := config.KnownHarnesses()
	var others []string
	for name := range cfg.Harnesses {
		if !slices.Contains(known, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range slices.Concat(known, others) {
		x := cfg.Harnesses[name]
		h := delegate.Harness{Name: name, CLI: harness.Name(name), Model: x.Model, BaseURL: x.BaseURL, Secret: x.APIKey, Variable: x.Variable}
		where := x.Program
		if len(x.ACP) > 0 {
			h.CLI, h.Args, where = harness.ACP, x.ACP[1:], x.ACP[0]
		}
		if h.Variable == "" {
			h.Variable = vendors[h.CLI].variable
		}
		if h.Secret == "" && h.CLI != harness.ACP {
			h.Key = cmp.Or(env.Named(h.Variable).Reveal(), env.Named(vendors[h.CLI].usual).Reveal())
		}
		var err error
		if h.Program, err = child.Find(h.CLI, where, dirs); err != nil {
			h.Program, h.Missing = "", err.Error()
		}
		out = append(out, h)
	}
	return out
}

// harnessReach is what a coding agent may reach.
type harnessReach struct {
	hosts, vendor []string // that are configured of it; of its vendor's API
	web           config.Web
}

// harnessesReach is what each coding agent may reach: what the fetch tool may, its vendor,
// and what is configured of it.
func harnessesReach(cfg config.Config) (map[string]harnessReach, error) {
	out := map[string]harnessReach{}
	for _, h := range harnessesOf(cfg, config.Environment{}, nil) {
		x := cfg.Harnesses[h.Name]
		r := harnessReach{hosts: x.Hosts, vendor: vendors[h.CLI].hosts, web: cfg.Tools.Web}
		if u, err := url.Parse(x.BaseURL); err == nil && u.Host != "" {
			r.vendor = slices.Concat(r.vendor, []string{u.Host})
		}
		if _, err := r.egress(); err != nil {
			return nil, err
		}
		out[h.Name] = r
	}
	return out, nil
}

// egress is that of a program that has its key or login itself.
func (r harnessReach) egress() (*guard.Egress, error) {
	return r.to(slices.Concat(r.hosts, r.vendor), nil)
}

// held is that of a program whose key ombud has: it reaches its API through ombud alone,
// unless that host is configured of it.
func (r harnessReach) held(w keyproxy.Way) (*guard.Egress, error) {
	not := []string{w.Host}
	if len(r.hosts) > 0 {
		configured, err := guard.NewEgress(guard.EgressConfig{OnlyHosts: r.hosts, AllowHosts: r.hosts})
		if err != nil {
			return nil, err
		}
		if configured.CheckURL(&url.URL{Scheme: "https", Host: w.Host}) == nil {
			not = nil
		}
	}
	return r.to(slices.Concat(r.hosts, []string{w.Address}), not)
}

func (r harnessReach) to(hosts, not []string) (*guard.Egress, error) {
	c := guard.EgressConfig{AllowHosts: hosts, NotHosts: not, AllowPrivate: r.web.AllowPrivate}
	if len(r.web.AllowHosts) > 0 {
		c.OnlyHosts = slices.Concat(r.web.AllowHosts, hosts)
	}
	return guard.NewEgress(c)
}

// shells are looked for to run checks.
var shells = []string{"/bin/sh", "/usr/bin/sh"}

// openDelegate constructs the delegations. Their parts are filled in by fillDelegate, when
// all of those are there.
func (d *Daemon) openDelegate(cfg config.Config, home string) error {
	in := d.o.Instance
	c := delegate.Config{
		Harnesses: harnessesOf(cfg, d.o.Environment, d.programDirs()), Default: cfg.Delegate.Default, Time: cfg.Delegate.Timeout, Quiet: cfg.Delegate.Quiet,
		Budget: budget.Limit{Set: cfg.Delegate.Limit.Set, MicroUSD: int64(cfg.Delegate.Limit.Amount)}, Home: home,
		State: filepath.Join(in.DataDir, "harness"), Trees: filepath.Join(in.DataDir, "worktrees"), Workspace: d.workspace(cfg),
		Socket: in.AgentSocket(), Path: strings.Join(d.programDirs(), string(filepath.ListSeparator)),
	}
	c.Caches, c.CheckNetwork = toolCaches(d.o.Environment, config.Home()), network(cfg.Delegate.CheckNetwork)
	for _, h := range c.Harnesses {
		know(d.hide, d.log, h.Variable, []byte(h.Key)) // where it is not held, its own commands can see it and say it
	}
	for _, text := range cfg.Delegate.Admit {
		r, err := delegate.ParseRoute(text)
		if err != nil {
			return err
		}
		c.Admit = append(c.Admit, r)
	}
	if exe, err := os.Executable(); err == nil {
		c.Program, _ = filepath.EvalSymlinks(exe) // "" lends no tools, and says so when they are wanted
	}
	for _, sh := range shells {
		if st, err := os.Stat(sh); err == nil && st.Mode().IsRegular() {
			c.Shell = sh
			break
		}
	}
	d.keys = keyproxy.New(keyproxy.Config{Hide: d.hide, Logger: d.log})
	d.delegations = delegate.New(&d.delegateDeps, c)
	return nil
}

// toolCaches are where toolchains keep what they have downloaded for the operator.
func toolCaches(env config.Environment, home string) (out []delegate.Cache) {
	modules := cmp.Or(env.Named("GOMODCACHE").Reveal(), joined(env.Named("GOPATH").Reveal(), "pkg", "mod"), joined(home, "go", "pkg", "mod"))
	for _, c := range []delegate.Cache{
		{Variable: "GOMODCACHE", Dir: modules},
		{Variable: "CARGO_HOME", Dir: cmp.Or(env.Named("CARGO_HOME").Reveal(), joined(home, ".cargo"))},
		{Variable: "RUSTUP_HOME", Dir: cmp.Or(env.Named("RUSTUP_HOME").Reveal(), joined(home, ".rustup"))},
		{Variable: "NVM_DIR", Dir: cmp.Or(env.Named("NVM_DIR").Reveal(), joined(home, ".nvm"))},
		{Variable: "PYENV_ROOT", Dir: cmp.Or(env.Named("PYENV_ROOT").Reveal(), joined(home, ".pyenv"))},
	} {
		if st, err := os.Stat(c.Dir); filepath.IsAbs(c.Dir) && err == nil && st.IsDir() {
			out = append(out, c)
		}
	}
	return out
}

// joined is a path below a directory, "" where there is none.
func joined(dir string, below ...string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(append([]string{filepath.SplitList(dir)[0]}, below...)...)
}

// fillDelegate gives the delegations what they use.
func (d *Daemon) fillDelegate(kinds *run.Kinds) error {
	d.delegateDeps = delegate.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Runs: d.runs, Act: d.act, Jobs: d.jobs, Budget: d.budget, Secrets: d.secrets, Agents: d.agents,
		Keys: d.keys, Starter: child.New(d.confined.launcher, child.Config{Environ: d.o.Environment.Programs(), Logger: d.log}),
		Git: checkpoint.NewProgram(d.confined.launcher), Launcher: d.confined.launcher,
		Authority: d.authorityOf, Price: d.harnessPrice, Likely: d.harnessLikely, Logger: d.log,
	}
	d.kit.Delegate = d.delegateFor
	return errors.Join(kinds.Add(d.delegations.RunKind()), kinds.Add(d.delegations.ApplyKind(func(repo string) (*act.Authority, error) {
		return d.operatorAuthority()
	})))
}

// settleDelegations tells and books the ends of tasks that could not be told when they came.
// What still cannot is in the log, and no reason to be without a daemon.
func (d *Daemon) settleDelegations(ctx context.Context) error {
	if err := d.delegations.Settle(ctx); err != nil {
		d.log.Error("tell of the ends of tasks", "error", err)
	}
	return ctx.Err()
}

// harnessPrice prices tokens of a program that tells no cost.
func (d *Daemon) harnessPrice(cli harness.Name, name string, u harness.Usage) (int64, bool) {
	return d.prices.Cost(vendors[cli].provider, bare(name), tokens(u))
}

// harnessLikely is what tokens of a model nobody priced may cost at most.
func (d *Daemon) harnessLikely(cli harness.Name, name string, u harness.Usage) (int64, bool) {
	p, known := d.prices.Kin(vendors[cli].provider, bare(name))
	return p.Cost(tokens(u)), known
}

// bare is a model's name without its provider.
func bare(name string) string {
	if _, m, split := strings.Cut(name, "/"); split {
		return m
	}
	return name
}

func tokens(u harness.Usage) model.Usage {
	return model.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
}

// delegateFor begins what a loop or a recipe gives to a coding agent.
func (d *Daemon) delegateFor(ctx context.Context, tx *db.Tx, parent string, t loops.Task) (string, error) {
	got, err := d.delegations.StartTx(ctx, tx, delegate.Order{Task: delegate.Task{
		Prompt: t.Prompt, Subject: t.Subject, Conversation: t.Conversation, Tier: policy.Trusted, Label: t.Label, Unattended: true, Use: loops.HarnessScope,
	}}, parent)
	return got.Run, err
}

// authorityOf is what a subject may do now, in a conversation it is talked to from with
// tier: an agent, what works by itself, or the operator, whose tools are those of the
// default agent.
func (d *Daemon) authorityOf(ctx context.Context, subject, conversation string, tier policy.Tier) (*act.Authority, error) {
	if subject == delegate.Operator {
		auth, err := d.agents.AuthorityOf(ctx, "agent:"+agent.Default, conversation, policy.Trusted)
		if err != nil {
			return nil, err
		}
		return delegating(auth), nil
	}
	who, err := d.actorOf(subject)
	switch {
	case err == nil:
		return d.kit.AuthorityOf(ctx, who)
	case !fault.Is(err, fault.NotFound):
		return nil, err
	}
	return d.agents.AuthorityOf(ctx, subject, conversation, tier)
}

// delegating is an authority that may also give work to coding agents, whatever its role
// says: the operator has said so by giving it.
func delegating(auth *act.Authority) *act.Authority {
	use := policy.Rule{Scope: scope.Must("harness"), Effect: policy.Allow}
	with := func(l *policy.Layer) *policy.Layer {
		others := slices.DeleteFunc(l.Rules(), func(r policy.Rule) bool { return r.Scope.Base() == use.Scope.Base() })
		return policy.NewLayer(l.Name(), append(others, use))
	}
	out := *auth
	out.Subject, out.Grants, out.Bounds, out.Role = delegate.Operator, with(auth.Grants), nil, nil
	for _, l := range auth.Bounds {
		out.Bounds = append(out.Bounds, with(l))
	}
	if auth.Role != nil {
		out.Tier = min(auth.Tier, auth.Role.MaxTier())
		for _, l := range auth.Role.Layers() {
			out.Bounds = append(out.Bounds, with(l))
		}
	}
	return &out
}
