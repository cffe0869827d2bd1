package config

import (
	"net/netip"
	"strings"
	"time"
)

// entry is one key: where it is, what it means and how its value is read. The
// table below is the only list of keys; loading, explaining, the sample file and
// the suggestions in errors are all made from it.
type entry struct {
	path     string // "*" stands for a name chosen by the person
	def      value  // zero: see required
	required bool   // for a key below "*" that has no sensible default
	doc      string
	set      func(c *Config, name string, v value) error
}

const (
	auto      = "auto"
	none      = "none"
	all       = "all"
	workspace = "workspace"
	asInput   = "input"
)

// vaultSources are those of internal/vault.
var vaultSources = []string{auto, "file", "passphrase", "env", "systemd", "keyring"}

func table() []entry {
	return []entry{
		{path: "store", def: text("sqlite"), set: put(func(c *Config) *Store { return &c.Store }, parseStore),
			doc: "Where everything is kept: sqlite (a file in the state directory) or postgres://user@host/database.\nA password does not belong here: use PGPASSFILE, PGPASSWORD or OMBUD_STORE."},
		{path: "vault.source", def: text(auto), set: put(func(c *Config) *string { return &c.Vault.Source }, oneOf(vaultSources...)),
			doc: "What opens the store: file (a key file beside it), passphrase (of vault.passphrase_file, else you are asked in a terminal),\nenv (OMBUD_PASSPHRASE), systemd (the credential ombud-passphrase), keyring, or auto.\nauto takes the first there is of: the key file, the keyring, the credential, the passphrase file, the variable, a terminal."},
		{path: "vault.passphrase_file", def: text(none), set: put(func(c *Config) *string { return &c.Vault.PassphraseFile }, parseFile),
			doc: "A file with the passphrase in one line, which only you can read: an absolute path, or none."},
		{path: "log.level", def: text("info"), set: put(func(c *Config) *Log { return &c.Log }, parseLog),
			doc: "How much the daemon logs: debug, info, warn or error."},

		{path: "models.main", def: text(auto), set: put(func(c *Config) *ModelRef { return &c.Models.Main }, parseModel),
			doc: "The model that answers: provider/model, a provider alone for its default model, or auto.\nauto takes the first found of: anthropic with a key, openai with a key, a running ollama, builtin."},
		{path: "models.summary", def: text(auto), set: put(func(c *Config) *ModelRef { return &c.Models.Summary }, parseModel),
			doc: "The model that shortens long conversations; auto is the main one."},
		{path: "models.providers.*.base_url", required: true, set: each(providers, func(p *Provider) *string { return &p.BaseURL }, parseBaseURL),
			doc: "Where the provider is. anthropic speaks its own protocol, all others the OpenAI-compatible one."},
		{path: "models.providers.*.api_key_env", def: text(none), set: each(providers, func(p *Provider) *string { return &p.APIKeyEnv }, parseEnvName),
			doc: "The NAME of the environment variable that holds the key, or none. Never the key itself."},
		{path: "models.providers.*.api_key", def: text(none), set: each(providers, func(p *Provider) *string { return &p.APIKey }, parseSecretRef),
			doc: "A reference to the key: secret:NAME, after ombud secret set NAME; or none. It goes before api_key_env. Never the key itself."},
		{path: "models.providers.*.model", def: text(auto), set: each(providers, func(p *Provider) *string { return &p.Model }, parseAutoText),
			doc: "The model taken when only the provider is named; auto is the first one it lists."},
		{path: "models.prices.*.input_usd", required: true, set: each(prices, func(p *Price) *MicroUSD { return &p.Input }, parseAmount),
			doc: "US dollars per million tokens sent; up to six decimals, kept exactly."},
		{path: "models.prices.*.output_usd", required: true, set: each(prices, func(p *Price) *MicroUSD { return &p.Output }, parseAmount),
			doc: "US dollars per million tokens received."},
		{path: "models.prices.*.cache_read_usd", def: text(asInput), set: each(prices, func(p *Price) *MicroUSD { return &p.CacheRead }, parseCachePrice),
			doc: "US dollars per million tokens read from the provider's cache; input is the same as input_usd."},
		{path: "models.prices.*.cache_write_usd", def: text(asInput), set: each(prices, func(p *Price) *MicroUSD { return &p.CacheWrite }, parseCachePrice),
			doc: "US dollars per million tokens written to the provider's cache; input is the same as input_usd."},

		{path: "agents.*.role", def: text("assistant"), set: each(agents, func(a *Agent) *string { return &a.Role }, parseName),
			doc: "The role that says what the agent may do."},
		{path: "agents.*.tools", def: text(all), set: each(agents, func(a *Agent) *[]string { return &a.Tools }, parseTools),
			doc: "The tools it is offered: a list of names, or all. A tool on the list still needs the role's leave."},
		{path: "agents.*.instructions", def: text(""), set: each(agents, func(a *Agent) *string { return &a.Instructions }, parseText),
			doc: "What the agent is told before every turn."},

		{path: "roles.*.parent", def: text(none), set: each(roles, func(r *Role) *string { return &r.Parent }, parseNoneName),
			doc: "A role this one can never exceed, or none."},
		{path: "roles.*.allow", def: items(), set: each(roles, func(r *Role) *[]string { return &r.Allow }, parseList),
			doc: "Scopes that are free, for example fs.read or net.fetch:https://example.com/docs."},
		{path: "roles.*.ask", def: items(), set: each(roles, func(r *Role) *[]string { return &r.Ask }, parseList),
			doc: "Scopes a person is asked about each time."},
		{path: "roles.*.deny", def: items(), set: each(roles, func(r *Role) *[]string { return &r.Deny }, parseList),
			doc: "Scopes that are refused whatever else is written. What no list names is refused too."},

		{path: "recipes.files", def: items(), set: put(func(c *Config) *[]string { return &c.Recipes.Files }, parsePaths),
			doc: "Recipes that are not in the directory recipes beside this file: absolute paths without links."},
		{path: "recipes.webhooks", def: items(), set: put(func(c *Config) *map[string]string { return &c.Recipes.Webhooks }, parsePairs),
			doc: "How a webhook of a recipe without a secret in its file, such as KARMAX's, proves itself: RECIPE=SECRET each, the name of a secret\nthat signs it, or RECIPE=open, which lets anybody start it. Without an entry it is not mounted."},

		{path: "turn.steps", def: text("32"), set: put(func(c *Config) *int { return &c.Turn.Steps }, number(1, 1000)),
			doc: "How often the model may be asked in one turn, 1 to 1000."},
		{path: "turn.calls", def: text("64"), set: put(func(c *Config) *int { return &c.Turn.Calls }, number(0, 10000)),
			doc: "How many tools may be called in one turn, 0 to 10000."},
		{path: "turn.timeout", def: text("120s"), set: put(func(c *Config) *time.Duration { return &c.Turn.Timeout }, duration("1s", "24h")),
			doc: "How long one turn may take, 1s to 24h. Waiting for a person does not count."},
		{path: "approvals.hold", def: text("10m"), set: put(func(c *Config) *time.Duration { return &c.Approvals.Hold }, duration("0s", "10m")),
			doc: "How long a conversation waits for an approval before it goes on without; at most 10m."},
		{path: "approvals.expires", def: text("24h"), set: put(func(c *Config) *time.Duration { return &c.Approvals.Expires }, duration("1m", "8760h")),
			doc: "After how long an approval can no longer be given, 1m to 8760h."},
		{path: "dead_letters.keep", def: text("0s"), set: put(func(c *Config) *time.Duration { return &c.DeadLetters.Keep }, duration("0s", "87600h")),
			doc: "After how long a dead letter that nobody replayed or dropped is forgotten, up to 87600h; 0s keeps it."},
		{path: "budget.day_usd", def: text("10"), set: put(func(c *Config) *Limit { return &c.Budget.Day }, parseLimit),
			doc: "US dollars that may be spent in a day, or none for no limit. 0 lets nothing be spent."},
		{path: "budget.month_usd", def: text("100"), set: put(func(c *Config) *Limit { return &c.Budget.Month }, parseLimit),
			doc: "US dollars that may be spent in a month, or none."},
		{path: "budget.turn_usd", def: text("1"), set: put(func(c *Config) *Limit { return &c.Budget.Turn }, parseLimit),
			doc: "US dollars that may be spent in one turn, or none."},
		{path: "tools.fs.root", def: text(workspace), set: put(func(c *Config) *string { return &c.Tools.FS.Root }, parseRoot),
			doc: "The directory the file tools work in and never leave: an absolute path, or workspace for the instance's own."},
		{path: "tools.fs.allow_sensitive", def: items(), set: put(func(c *Config) *[]string { return &c.Tools.FS.AllowSensitive }, parsePaths),
			doc: "Files and directories that may be read and written although their names say that they hold secrets or are run by themselves:\nabsolute paths without links."},
		{path: "tools.shell.allow", def: items("cat", "date", "df", "du", "echo", "head", "ls", "pwd", "tail", "uname", "uptime", "wc"),
			set: put(func(c *Config) *[]string { return &c.Tools.Shell.Allow }, parsePrograms),
			doc: "Programs the shell tool may start: names found in PATH, or absolute paths. There is no shell in between."},
		{path: "tools.shell.network", def: text(NetworkNone), set: put(func(c *Config) *string { return &c.Tools.Shell.Network }, oneOf(NetworkNone, NetworkProxy, NetworkAll)),
			doc: "What those programs may reach of the network: none, proxy (what the fetch tool may reach, see tools.web, through ombud's own\nproxy) or all. A program that takes no proxy has no network with proxy."},
		{path: "tools.shell.read", def: items(), set: put(func(c *Config) *[]string { return &c.Tools.Shell.Read }, parsePaths),
			doc: "Files and directories those programs may read and run, besides the workspace, the system's and the usual tool chains:\nabsolute paths without links."},
		{path: "confine.enforce", def: text(EnforceStrict), set: put(func(c *Config) *string { return &c.Confine.Enforce }, oneOf(EnforceStrict, EnforceBest, EnforceOff)),
			doc: "What happens where a program cannot be confined: strict (it does not run), best (it runs with what the system has)\nor off (programs are not confined at all). ombud doctor says what is in force."},
		{path: "tools.web.allow_hosts", def: items(), set: put(func(c *Config) *[]string { return &c.Tools.Web.AllowHosts }, parseHosts),
			doc: "The only hosts the fetch tool may reach, such as example.com or *.example.com; an empty list is every public host."},
		{path: "tools.web.allow_private", def: text("false"), set: put(func(c *Config) *bool { return &c.Tools.Web.AllowPrivate }, parseBool),
			doc: "Whether the fetch tool may reach this machine and its private networks."},
		{path: "listen.address", def: text(DefaultListen), set: put(func(c *Config) *netip.AddrPort { return &c.Listen.Address }, parseListen),
			doc: "Where the network listener is (health, metrics, webhooks): IP:port, or off. One that other machines can reach needs\nlisten.admin_token, and TLS or a proxy that has it. The default port may be taken: then it is tried again."},
		{path: "listen.hosts", def: items(), set: put(func(c *Config) *[]string { return &c.Listen.Hosts }, parseHostNames),
			doc: "Names this host is called by in requests, besides localhost: what a proxy or a tunnel passes on, such as hooks.example.com."},
		{path: "listen.behind_proxy", def: text("false"), set: put(func(c *Config) *bool { return &c.Listen.BehindProxy }, parseBool),
			doc: "Whether a proxy in front of it has TLS and asks for others."},
		{path: "listen.tls_cert", def: text(none), set: put(func(c *Config) *string { return &c.Listen.Cert }, parseFile),
			doc: "The certificate of the listener, in PEM with its chain: an absolute path, or none."},
		{path: "listen.tls_key", def: text(none), set: put(func(c *Config) *string { return &c.Listen.Key }, parseFile),
			doc: "The key of that certificate: an absolute path, or none."},
		{path: "listen.admin_token", def: text(none), set: put(func(c *Config) *string { return &c.Listen.AdminToken }, parseSecretRef),
			doc: "A reference to the token that lets somebody read the metrics from elsewhere: secret:NAME, after ombud secret set NAME; or none."},
		{path: "audit.anchor_file", def: text(none), set: put(func(c *Config) *string { return &c.Audit.AnchorFile }, parseFile),
			doc: "A file outside of the store that keeps the signed places of the audit log, a line each: an absolute path, or none.\nWith it a store that was put back to an older state is found. Best on another disk, append-only, and copied elsewhere."},

		{path: "loops.*.enabled", def: text(auto), set: each(loops, func(l *Loop) **bool { return &l.Enabled }, parseAutoBool),
			doc: "Whether the loop runs: true, false, or auto for what the loop itself says. ombud loop list shows them."},
		{path: "loops.*.timeout", def: text("12m"), set: each(loops, func(l *Loop) *time.Duration { return &l.Timeout }, duration("1s", "24h")),
			doc: "How long one run of it may work, 1s to 24h. Waiting does not count."},
		{path: "loops.*.set", def: items(), set: each(loops, func(l *Loop) *map[string]string { return &l.Set }, parsePairs),
			doc: "Its own settings, NAME=VALUE each; ombud loop show NAME tells them."},

		{path: "delegate.default", def: text(auto), set: put(func(c *Config) *string { return &c.Delegate.Default }, parseAutoText),
			doc: "The coding agent that is given work where none is named; auto is the first on this machine of\nclaude, codex, gemini, opencode, pi and those of harnesses."},
		{path: "delegate.admit", def: items(), set: put(func(c *Config) *[]string { return &c.Delegate.Admit }, parseRoutes),
			doc: "The routes that may run: HARNESS with its own model, HARNESS/MODEL, or HARNESS/* for any model of its vendor.\nAn empty list is every harness with its own model."},
		{path: "delegate.timeout", def: text("30m"), set: put(func(c *Config) *time.Duration { return &c.Delegate.Timeout }, duration("1s", "24h")),
			doc: "How long one delegation may work, 1s to 24h. Waiting for a person does not count."},
		{path: "delegate.quiet", def: text("10m"), set: put(func(c *Config) *time.Duration { return &c.Delegate.Quiet }, duration("1s", "24h")),
			doc: "After how long without a word from it a coding agent is ended, 1s to 24h."},
		{path: "delegate.usd", def: text("5"), set: put(func(c *Config) *Limit { return &c.Delegate.Limit }, parseLimit),
			doc: "US dollars one delegation may cost, or none. The budgets hold too. Programs that cannot be told stop later."},
		{path: "delegate.checks.network", def: text(NetworkNone), set: put(func(c *Config) *string { return &c.Delegate.CheckNetwork }, oneOf(NetworkNone, NetworkProxy)),
			doc: "What a check of what a coding agent wrote may reach: none, or proxy, which is what that agent may."},
		{path: "harnesses.*.program", def: text(auto), set: each(harnesses, func(h *Harness) *string { return &h.Program }, parseAutoPath),
			doc: "Where the program of claude, codex, gemini, opencode or pi is: an absolute path; auto looks in PATH and where npm puts them."},
		{path: "harnesses.*.acp", def: items(), set: each(harnesses, func(h *Harness) *[]string { return &h.ACP }, parseCommand),
			doc: "For any other name: the command that starts an agent speaking the Agent Client Protocol, an absolute path and its arguments."},
		{path: "harnesses.*.model", def: text(auto), set: each(harnesses, func(h *Harness) *string { return &h.Model }, parseAutoText),
			doc: "The model it is started with; auto leaves it to the program."},
		{path: "harnesses.*.base_url", def: text(none), set: each(harnesses, func(h *Harness) *string { return &h.BaseURL }, parseNoneURL),
			doc: "Where the API of its model is, or none for the program's own. It may be on this machine."},
		{path: "harnesses.*.api_key", def: text(none), set: each(harnesses, func(h *Harness) *string { return &h.APIKey }, parseSecretRef),
			doc: "A reference to its key: secret:NAME, after ombud secret set NAME; none for a program that is logged in."},
		{path: "harnesses.*.api_key_variable", def: text(auto), set: each(harnesses, func(h *Harness) *string { return &h.Variable }, parseAutoText),
			doc: "The variable the program takes its key in; auto is its vendor's, such as ANTHROPIC_API_KEY."},
		{path: "harnesses.*.hosts", def: items(), set: each(harnesses, func(h *Harness) *[]string { return &h.Hosts }, parseHosts),
			doc: "Hosts it may reach besides its vendor's and those of tools.web.allow_hosts, such as registry.example.com.\nWhile ombud keeps its key, its vendor's API is reached through ombud alone unless it is named here."},
	}
}

// shipped are the names that exist without being written, with those of their
// values that differ from the key's own default.
var shipped = map[string]map[string]string{
	"models.providers.anthropic": {"base_url": "https://api.anthropic.com", "api_key_env": "ANTHROPIC_API_KEY", "model": "claude-sonnet-4-6"},
	"models.providers.openai":    {"base_url": "https://api.openai.com/v1", "api_key_env": "OPENAI_API_KEY", "model": "gpt-5.6-sol"},
	"models.providers.ollama":    {"base_url": "http://127.0.0.1:11434/v1"},
	"agents.main":                {},
}

// shippedRoles are defined by the policy, not here. builtinProviders need no
// configuration and have none.
var (
	shippedRoles     = []string{"assistant", "first-party", "recipe"}
	builtinProviders = []string{"builtin", "scripted"}
)

// examples fill a part of the sample file that has no shipped name.
var examples = map[string]struct {
	name   string
	values map[string]string
}{
	"models.prices": {"openai/some-model", map[string]string{"input_usd": "2.50", "output_usd": "15"}},
	"harnesses":     {"claude", map[string]string{"api_key": "secret:anthropic"}},
	"loops":         {"memory-upkeep", map[string]string{"set": "[merge=true]"}},
	"roles":         {"reader", map[string]string{"parent": "assistant", "allow": "[fs.read]", "deny": "[shell.exec]"}},
}

func providers(c *Config) map[string]Provider { return c.Models.Providers }
func prices(c *Config) map[string]Price       { return c.Models.Prices }
func agents(c *Config) map[string]Agent       { return c.Agents }
func roles(c *Config) map[string]Role         { return c.Roles }
func loops(c *Config) map[string]Loop         { return c.Loops }
func harnesses(c *Config) map[string]Harness  { return c.Harnesses }

// put stores a parsed value at a fixed place.
func put[F any](at func(*Config) *F, parse func(value) (F, error)) func(*Config, string, value) error {
	return func(c *Config, _ string, v value) error {
		f, err := parse(v)
		if err == nil {
			*at(c) = f
		}
		return err
	}
}

// each stores a parsed value in the named element of a map.
func each[T, F any](m func(*Config) map[string]T, at func(*T) *F, parse func(value) (F, error)) func(*Config, string, value) error {
	return func(c *Config, name string, v value) error {
		f, err := parse(v)
		if err == nil {
			t := m(c)[name]
			*at(&t) = f
			m(c)[name] = t
		}
		return err
	}
}

// node is the table as a tree, for walking a file beside it.
type node struct {
	path     string
	children map[string]*node // by key; "*" for any name
	order    []string
	entry    *entry // of a leaf
}

func tree(entries []entry) *node {
	root := &node{children: map[string]*node{}}
	for i := range entries {
		at := root
		for key := range strings.SplitSeq(entries[i].path, ".") {
			next := at.children[key]
			if next == nil {
				next = &node{path: join(at.path, key), children: map[string]*node{}}
				at.children[key] = next
				at.order = append(at.order, key)
			}
			at = next
		}
		at.entry = &entries[i]
	}
	return root
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// concrete puts a name in the place of "*".
func concrete(pattern, name string) string { return strings.Replace(pattern, "*", name, 1) }
