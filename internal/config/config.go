// Package config loads what a person may set: defaults, then one YAML file, then
// OMBUD_… variables, then flags, each over the one before. It keeps where every
// value came from, and it is the only package that reads the environment.
//
// Loading is strict: a key nothing executes is an error, so is a value that
// cannot be used, and all problems are reported at once, each with its file,
// line and column. A secret is never a value, only a reference to one that is kept or
// the name of a variable that holds it; a file that contains one is refused and no
// message repeats it.
//
// The structs here are plain data. The roof hands each package its part.
package config

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Config is everything, checked once and unchanged after.
type Config struct {
	Store       Store
	Vault       Vault
	Log         Log
	Models      Models
	Agents      map[string]Agent
	Roles       map[string]Role // those of the file; a name replaces a shipped role
	Turn        Turn
	Approvals   Approvals
	DeadLetters DeadLetters
	Budget      Budget
	Tools       Tools
	Confine     Confine
	Audit       Audit
	Listen      Listen
	Loops       map[string]Loop // those of the file
	Recipes     Recipes
	Delegate    Delegate
	Harnesses   map[string]Harness // those of the file, beside the programs that are known
}

// Store says where everything is kept.
type Store struct {
	Postgres Secret // a postgres:// URL; unset is SQLite in the instance's state directory
}

// Vault says with what the store is opened.
type Vault struct {
	Source         string // auto, file, passphrase, env, systemd or keyring
	PassphraseFile string // absolute; "" is none
}

// Log is for the daemon's own log.
type Log struct {
	Level slog.Level // info
}

// Models says which model does what and how to reach it.
type Models struct {
	Main, Summary ModelRef // auto; Summary: as Main
	Providers     map[string]Provider
	Prices        map[string]Price // by "provider/model", over the built-in table
}

// ModelRef names a model. The zero value is "auto". An empty Model of a named
// provider means that provider's default.
type ModelRef struct {
	Provider, Model string
}

// Auto reports whether the choice is left to ombud.
func (r ModelRef) Auto() bool { return r.Provider == "" }

func (r ModelRef) String() string {
	switch {
	case r.Auto():
		return auto
	case r.Model == "":
		return r.Provider
	}
	return r.Provider + "/" + r.Model
}

// Provider is one place models are served. The one called anthropic speaks that
// vendor's protocol, all others the OpenAI-compatible one.
type Provider struct {
	BaseURL   string // without a slash at the end
	APIKeyEnv string // name of the variable with the key, "" for none
	APIKey    string // name of the secret with the key, before APIKeyEnv; "" for none
	Model     string // default model, "" is the first one the provider lists
}

// Price is what a million tokens cost.
type Price struct {
	Input, Output, CacheRead, CacheWrite MicroUSD
}

// MicroUSD is an amount of money in millionths of a dollar.
type MicroUSD int64

// String writes the amount exactly, in dollars.
func (m MicroUSD) String() string {
	s := strings.TrimRight(fmt.Sprintf("%d.%06d", m/1e6, m%1e6), "0")
	return strings.TrimSuffix(s, ".")
}

// Limit is an amount that may be left open. The zero value is no limit; a set
// limit of zero lets nothing be spent.
type Limit struct {
	Set    bool
	Amount MicroUSD
}

func (l Limit) String() string {
	if !l.Set {
		return none
	}
	return l.Amount.String()
}

// Agent is a configured identity.
type Agent struct {
	Role         string   // assistant
	Tools        []string // nil is every tool the role allows, empty is none
	Instructions string   // added to the system prompt
}

// Loop is what is set of a loop that is compiled in.
type Loop struct {
	Enabled *bool             // nil: as the loop says
	Timeout time.Duration     // 12m
	Set     map[string]string // its own settings
}

// Recipes says where recipes are beside those of the instance's own directory.
type Recipes struct {
	Files    []string          // absolute
	Webhooks map[string]string // recipe → the name of a secret, or open
}

// Delegate says which coding agents may be given work, and how much.
type Delegate struct {
	Default string        // name of a harness; "" is the first that is on this machine
	Admit   []string      // routes; nothing is every harness with its own model
	Timeout time.Duration // 30m one may work
	Quiet   time.Duration // 10m without a word from it
	Limit   Limit         // of one

	CheckNetwork string // of checks: none or proxy
}

// Harness is a coding agent. One of the names of the programs that are known is that program.
type Harness struct {
	Program  string   // absolute; "" is looked for
	ACP      []string // the command of an agent that speaks ACP, absolute; nothing for a known program
	Model    string   // "" leaves it to the program
	BaseURL  string   // of the model's API, "" is the program's own
	APIKey   string   // name of the secret with its key, "" for a program that is logged in
	Variable string   // the variable it takes the key in, "" for the usual one
	Hosts    []string // it may reach besides those of its vendor and of tools.web
}

// KnownHarnesses are the names of harnesses that are a program known to ombud, in the order
// in which one is chosen.
func KnownHarnesses() []string { return []string{"claude", "codex", "gemini", "opencode", "pi"} }

// Role is what a subject may do: rules by scope, at most what Parent may.
type Role struct {
	Parent           string // "" for none
	Allow, Ask, Deny []string
}

// Turn bounds one turn of an agent.
type Turn struct {
	Steps   int           // 32 model steps
	Calls   int           // 64 tool calls
	Timeout time.Duration // 120s from the moment it leaves the mailbox
}

// Approvals bounds the waiting for a person.
type Approvals struct {
	Hold    time.Duration // 10m a conversation waits before the turn is parked
	Expires time.Duration // 24h until nobody can approve it any more
}

// DeadLetters says how long what was given up is kept.
type DeadLetters struct {
	Keep time.Duration // 0: until it is replayed or dropped
}

// Budget holds hard stops. A turn that would pass one does not start its call.
type Budget struct {
	Day, Month, Turn Limit // 10, 100, 1 USD
}

// Tools configures the tools that come with ombud.
type Tools struct {
	FS    FS
	Shell Shell
	Web   Web
}

// FS is for the file tools.
type FS struct {
	Root           string   // absolute; "" is the workspace of the instance
	AllowSensitive []string // absolute; files and directories that are never sensitive
}

// Shell is for the shell tool.
type Shell struct {
	Allow   []string // executables: a name found in PATH, or an absolute path
	Network string   // none
	Read    []string // absolute; what they may read besides
}

// Audit is for the record of what was done.
type Audit struct {
	AnchorFile string // absolute; "" is none
}

// Web is for the fetch tool.
type Web struct {
	AllowHosts   []string // host or *.host; empty is every public host
	AllowPrivate bool     // false: addresses of this machine and its networks are refused
}
