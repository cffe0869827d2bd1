package remote

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// Kind is the kind of all adapters' channels. There is nothing it is set up with.
const Kind = "external"

// fresh is what is said of an adapter that nothing was said of: nobody unknown is answered.
var fresh = channel.Settings{Strangers: channel.Ignore}

// Set changes the settings of an adapter, all or none, and uses them at once. Each value
// is NAME=VALUE. Errors: NotFound, Invalid, or the store's.
func (r *Remote) Set(ctx context.Context, name string, values []string, by string) (Adapter, error) {
	for _, v := range values {
		if what, _, _ := strings.Cut(v, "="); strings.TrimSpace(what) == "stream" {
			return Adapter{}, fault.New(fault.Invalid, "an adapter is handed answers when they are whole: there is no stream")
		}
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	err := r.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a := Adapter{Name: name}
		var err error
		if a.Settings, err = r.settings(ctx, tx, name); err != nil {
			return err
		}
		if err := a.Settings.SetAll(channel.Kind{Name: Kind}, values); err != nil {
			return err
		}
		plain, err := json.Marshal(a.Settings)
		if err != nil {
			return fault.New(fault.Internal, "settings of adapter %s: %w", name, err)
		}
		n, err := tx.Exec(ctx, "UPDATE adapters SET settings = $1 WHERE name = $2 AND removed = 0", r.Vault.Seal(vault.AdapterSettings, name, plain), name)
		if err == nil && n == 0 {
			err = noAdapter(name)
		}
		if err != nil {
			return err
		}
		return r.tell(ctx, tx, a, KindChanged, by)
	})
	if err != nil {
		return Adapter{}, err
	}
	return r.Get(ctx, name)
}

// settings reads those of an adapter. They are read anew for each use: another node may
// have changed them.
func (r *Remote) settings(ctx context.Context, q db.Q, name string) (channel.Settings, error) {
	var sealed []byte
	err := q.QueryRow(ctx, "SELECT settings FROM adapters WHERE name = $1 AND removed = 0", name).Scan(&sealed)
	if errors.Is(err, sql.ErrNoRows) {
		return fresh, noAdapter(name)
	}
	if err != nil {
		return fresh, err
	}
	return r.open(name, sealed)
}

func (r *Remote) open(name string, sealed []byte) (set channel.Settings, err error) {
	if sealed == nil {
		return fresh, nil
	}
	plain, err := r.Vault.Open(vault.AdapterSettings, name, sealed)
	if err == nil {
		err = json.Unmarshal(plain, &set)
	}
	return set, err
}
