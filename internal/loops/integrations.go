package loops

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

// Health is how an integration stands.
type Health string

// The states.
const (
	Working      Health = "working"
	Degraded     Health = "degraded" // it does something of what it should
	Failing      Health = "failing"
	NotConnected Health = "not connected" // nobody set it up
)

// Probe looks at one thing ombud depends on. Look has to end when its context does, for it
// is waited for; it says how the thing stands and, unless that is well, why.
type Probe struct {
	Name, Kind string
	Look       func(ctx context.Context) (Health, string)
}

// Integration is how one of them was found. Times are Unix microseconds.
type Integration struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	State   Health `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Since   int64  `json:"since"`   // in this state
	Checked int64  `json:"checked"` // last
}

// Bounds of a check.
const (
	atOnce    = 8
	probeTime = 10 * time.Second
	maxReason = 500
)

// Integrations keeps how everything stands that ombud depends on.
type Integrations struct {
	db     *db.DB
	vault  *vault.Vault
	hide   *redact.Redactor
	probes func(ctx context.Context) ([]Probe, error)
}

// NewIntegrations returns the integrations that probes finds. hide may be nil.
func NewIntegrations(d *db.DB, v *vault.Vault, hide *redact.Redactor, probes func(ctx context.Context) ([]Probe, error)) *Integrations {
	return &Integrations{db: d, vault: v, hide: hide, probes: probes}
}

// List returns how everything was found last, by kind and name.
func (n *Integrations) List(ctx context.Context) (out []Integration, err error) {
	err = n.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (i Integration, err error) {
			var sealed []byte
			if err := r.Scan(&i.Name, &i.Kind, &i.State, &sealed, &i.Since, &i.Checked); err != nil {
				return i, err
			}
			plain, err := n.vault.Open(vault.IntegrationReason, i.Name, sealed)
			i.Reason = string(plain)
			return i, err
		}, "SELECT name, kind, state, reason, since, checked FROM integrations ORDER BY kind, name")
		return err
	})
	return out, err
}

// Check looks at everything, a few at once and each for at most ten seconds, and keeps
// what it finds. Nobody is told.
func (n *Integrations) Check(ctx context.Context) ([]Integration, error) {
	found, err := n.look(ctx)
	if err != nil {
		return nil, err
	}
	err = n.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return n.keepTx(ctx, tx, found) })
	if err != nil {
		return nil, err
	}
	return n.List(ctx)
}

// look asks all probes.
func (n *Integrations) look(ctx context.Context) ([]Integration, error) {
	probes, err := n.probes(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Integration, len(probes))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, p := range probes {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = n.ask(ctx, p)
		})
	}
	wg.Wait()
	return out, ctx.Err()
}

// ask looks at one thing, and waits for the end of that.
func (n *Integrations) ask(ctx context.Context, p Probe) Integration {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	state, reason := looked(ctx, p)
	reason, _ = guard.CutText(guard.CleanText(n.hide.String(reason)), maxReason)
	return Integration{Name: p.Name, Kind: p.Kind, State: state, Reason: strings.Join(strings.Fields(reason), " ")}
}

// looked is what a probe says. That it breaks down says something too.
func looked(ctx context.Context, p Probe) (state Health, reason string) {
	defer func() {
		if bad := recover(); bad != nil {
			state, reason = Failing, fmt.Sprint("its check broke down: ", bad)
		}
	}()
	return p.Look(ctx)
}

// keepTx keeps what was found, and forgets what is no more.
func (n *Integrations) keepTx(ctx context.Context, tx *db.Tx, found []Integration) error {
	names, err := db.All(ctx, tx, db.Column[string], "SELECT name FROM integrations")
	if err != nil {
		return err
	}
	for _, i := range found {
		names = slices.DeleteFunc(names, func(name string) bool { return name == i.Name })
		_, err := tx.Exec(ctx, `INSERT INTO integrations (name, kind, state, told, reason, since, checked) VALUES ($1, $2, $3, '', $4, $5, $5)
			ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, reason = excluded.reason, checked = excluded.checked,
				since = CASE WHEN integrations.state = excluded.state THEN integrations.since ELSE excluded.since END, state = excluded.state`,
			i.Name, i.Kind, i.State, n.vault.Seal(vault.IntegrationReason, i.Name, []byte(i.Reason)), tx.Now())
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, err := tx.Exec(ctx, "DELETE FROM integrations WHERE name = $1", name); err != nil {
			return err
		}
	}
	return nil
}

// untoldTx returns what the operator has to be told of what was found, and notes it as
// told: each change once. What is well from the start is no news.
func (n *Integrations) untoldTx(ctx context.Context, tx *db.Tx, found []Integration) (string, error) {
	type row struct{ name, state, told string }
	rows, err := db.All(ctx, tx, func(r *db.Rows) (x row, err error) { err = r.Scan(&x.name, &x.state, &x.told); return x, err },
		"SELECT name, state, told FROM integrations WHERE state <> told ORDER BY name")
	if err != nil {
		return "", err
	}
	var lines []string
	for _, x := range rows {
		if _, err := tx.Exec(ctx, "UPDATE integrations SET told = state WHERE name = $1", x.name); err != nil {
			return "", err
		}
		at := slices.IndexFunc(found, func(i Integration) bool { return i.Name == x.name })
		well := Health(x.state) == Working || Health(x.state) == NotConnected
		if at < 0 || well && x.told == "" {
			continue
		}
		line := x.name + " is " + x.state
		if x.told != "" {
			line += ", was " + x.told
		}
		if found[at].Reason != "" {
			line += ": " + found[at].Reason
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

// Loop looks at everything now and then and tells the operator of each change once.
func (n *Integrations) Loop() Loop {
	return Loop{
		Name: "integration-health", Description: "looks at what ombud depends on and tells you of every change, once",
		On: []trigger.On{{Schedule: &trigger.Schedule{When: "@every 15m", Missed: "skip"}}, {Manual: true}},
		Run: func(ctx context.Context, k *Kit) error {
			raw, err := k.Step(ctx, "look", func(ctx context.Context) (json.RawMessage, error) {
				found, err := n.look(ctx)
				if err != nil {
					return nil, err
				}
				return json.Marshal(found)
			})
			if err != nil {
				return err
			}
			var found []Integration
			if err := json.Unmarshal(raw, &found); err != nil {
				return fault.New(fault.Verification, "what was found: %w", err)
			}
			news, err := k.rowsOf(ctx, "keep", func(ctx context.Context, tx *db.Tx) (string, error) {
				if err := n.keepTx(ctx, tx, found); err != nil {
					return "", err
				}
				return n.untoldTx(ctx, tx, found)
			})
			if err != nil || news == "" {
				return err
			}
			return k.Notify(ctx, "tell", "integrations", news)
		},
	}
}
