package signed

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/secret"
)

// Limits of settings.
const (
	maxValues  = 64
	maxValue   = 16 << 10
	maxKey     = 128
	maxTimeout = 24 * time.Hour
)

// Change is what the operator sets anew of an installed loop; nil leaves a thing as it is.
type Change struct {
	Name    string
	By      string
	Set     map[string]string // values by key
	Unset   []string          // keys that are gone
	Timeout *time.Duration    // 0: the usual
	Webhook *string           // see Settings.Webhook
}

// settingsData is the payload of loop.set. Values may be confidential: only keys are told.
type settingsData struct {
	Name    string   `json:"name"`
	Set     []string `json:"set,omitempty"`
	Unset   []string `json:"unset,omitempty"`
	Timeout string   `json:"timeout,omitempty"`
	Webhook string   `json:"webhook,omitempty"`
}

// Set changes the settings of a loop. A run that is under way goes on with what it has
// read. Errors: NotFound, Invalid if a value cannot be one.
func (l *Library) Set(ctx context.Context, c Change) (x Installed, err error) {
	c.Name = strings.TrimPrefix(c.Name, prefix)
	if err := c.check(); err != nil {
		return x, err
	}
	err = l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if x, err = l.getIn(ctx, tx, c.Name); err != nil {
			return err
		}
		if x.Problem != nil {
			return x.Problem
		}
		values := maps.Clone(x.Settings.Values)
		if values == nil {
			values = map[string]string{}
		}
		maps.Copy(values, c.Set)
		for _, key := range c.Unset {
			if _, there := values[key]; !there {
				return fault.New(fault.NotFound, "%s has no setting %q", c.Name, key).WithHint("ombud loop show %s", c.Name)
			}
			delete(values, key)
		}
		if len(values) > maxValues {
			return fault.New(fault.Invalid, "a loop has at most %d settings", maxValues)
		}
		x.Settings.Values = values
		data := settingsData{Name: c.Name, Set: slices.Sorted(maps.Keys(c.Set)), Unset: c.Unset}
		if c.Timeout != nil {
			x.Settings.Timeout, data.Timeout = *c.Timeout, c.Timeout.String()
		}
		if c.Webhook != nil {
			if x.Manifest.Webhook == "" && *c.Webhook != "" {
				return fault.New(fault.Invalid, "%s has no webhook", c.Name)
			}
			x.Settings.Webhook, data.Webhook = *c.Webhook, *c.Webhook
		}
		if err := l.putTx(ctx, tx, x); err != nil {
			return err
		}
		if err := l.targetsTx(ctx, tx); err != nil {
			return err
		}
		if _, err := l.d.Audit.AppendTx(ctx, tx, audit.Entry{Kind: "loop", Actor: c.By, Subject: x.Subject(), Outcome: "ok", Reason: "set"}); err != nil {
			return err
		}
		_, err := l.d.Log.AppendTx(ctx, tx, eventlog.New{Stream: x.Subject(), Kind: "loop.set", Actor: c.By, Data: data, Expect: eventlog.Any})
		return err
	})
	return x, err
}

func (c Change) check() error {
	for key, value := range c.Set {
		if key == "" || len(key) > maxKey || len(value) > maxValue || strings.ContainsRune(key, 0) || strings.ContainsRune(value, 0) {
			return fault.New(fault.Invalid, "setting %q: a key has 1 to %d bytes, a value at most %d, and neither a NUL", key, maxKey, maxValue)
		}
	}
	if c.Timeout != nil && (*c.Timeout < 0 || *c.Timeout > maxTimeout) {
		return fault.New(fault.Invalid, "a run cannot be given %s to work; the most is %s", *c.Timeout, maxTimeout)
	}
	if c.Webhook != nil && *c.Webhook != "" && *c.Webhook != "open" {
		return secret.CheckName(*c.Webhook)
	}
	return nil
}
