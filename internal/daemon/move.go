package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/ombud-run/ombud/internal/backup"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// MovedStore is a store that was copied to PostgreSQL and compared.
type MovedStore struct {
	To         string       `json:"to"`                // without its password
	Already    bool         `json:"already,omitempty"` // it was there before: nothing was copied or compared now
	Tables     []MovedTable `json:"tables"`
	Rows       int64        `json:"rows"`
	Head       int64        `json:"head"`   // the last event
	Source     string       `json:"source"` // the file that was read; it is as it was
	DurationUS int64        `json:"duration_us"`
}

// MovedTable is one table of it.
type MovedTable struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"` // of its rows in the order of the key
}

// MoveStore copies the SQLite store of an instance to the database that to names. The
// instance is locked meanwhile. It can be cut off at any point and called again. With
// leave, no daemon starts on the file from then on: it would work beside the database.
func MoveStore(ctx context.Context, o Options, to *config.Loaded, leave bool, report func(table string, rows int64)) (out MovedStore, err error) {
	begun := time.Now()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if _, err := os.Stat(o.Instance.StateDB()); err != nil {
		return out, fault.New(fault.NotFound, "instance %s has no store on SQLite: %s is not there", o.Instance.Name, o.Instance.StateDB()).
			WithHint("a new instance needs no move: let store in the configuration name the database")
	}
	unlock, err := db.Lock(o.Instance.LockFile())
	if err != nil {
		return out, err
	}
	defer unlock()
	so := storeOptions(o)
	so.HoldsLock = true
	from, err := openStore(ctx, o, so)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	memory, err := vaultMemory(ctx, from)
	if err != nil {
		return out, err
	}
	if memory.Public == "" {
		return out, fault.New(fault.NotFound, "the store was never worked with: there is nothing to move").
			WithHint("let store in the configuration name the database, and start with ombud up")
	}
	k, _, err := openVault(ctx, from, o, false)
	if err != nil {
		return out, err
	}
	defer k.Close()
	target := o
	target.Config = to
	out = MovedStore{To: db.ShowDSN(storeOptions(target).DSN), Source: o.Instance.StateDB(), Tables: []MovedTable{}}
	if out.Head, err = eventlog.NewLog(from, k.Vault(), o.Logger, eventlog.Options{}).Head(ctx); err != nil {
		return out, err
	}
	if out.Already, err = db.BeginMove(ctx, storeOptions(target).DSN, memory.Public); err != nil {
		return out, err
	}
	defer func() {
		if err == nil && leave {
			err = from.Leave(ctx, out.To)
		}
	}()
	if out.Already {
		return out, checkMoved(ctx, from, target, out.Head)
	}
	tables, err := move(ctx, from, target, k.Vault(), out.Head, memory.Public, report)
	for _, t := range tables {
		out.Rows += t.Rows
		out.Tables = append(out.Tables, MovedTable{t.Name, t.Rows, hex.EncodeToString(t.SHA256)})
	}
	out.DurationUS = time.Since(begun).Microseconds()
	return out, err
}

// move copies, compares, looks whether what is there verifies, and only then lets a
// daemon have it.
func move(ctx context.Context, from *db.DB, target Options, v *vault.Vault, head int64, source string, report func(string, int64)) (tables []db.MovedTable, err error) {
	seat, err := takeSeat(ctx, target, db.SeatOptions{Moving: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, seat.Release(context.WithoutCancel(ctx))) }()
	if tables, err = from.CopyTo(ctx, seat, report); err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, db.Options{DSN: storeOptions(target).DSN, ReadOnly: true, Moving: true, Logger: target.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	events := eventlog.NewLog(d, v, target.Logger, eventlog.Options{})
	runs := run.New(d, v, events, run.NewKinds(), run.Options{Logger: target.Logger})
	if err := checkContent(ctx, d, v, events, runs, backup.Manifest{Head: head}); err != nil {
		return nil, fmt.Errorf("what was moved: %w", err)
	}
	return tables, from.FinishMove(ctx, seat, source)
}

// errLeft is why no daemon works with a store on SQLite that was moved.
func errLeft(file, to string) error {
	return fault.New(fault.Config, "%s was moved to %s and is what it was before: a daemon that works with it would know nothing of what was done since", file, to).
		WithHint("name the database again, by store in the configuration or OMBUD_STORE; or go back to the file as it is with ombud store migrate --take-back")
}

// TakeBackStore lets daemons work with the SQLite file of an instance again, as it was
// when it was moved.
func TakeBackStore(ctx context.Context, o Options) (file, from string, err error) {
	file = o.Instance.StateDB()
	if _, err := os.Stat(file); err != nil {
		return file, "", fault.New(fault.NotFound, "instance %s has no store on SQLite: %s is not there", o.Instance.Name, file)
	}
	d, err := openStore(ctx, o, storeOptions(o))
	if err != nil {
		return file, "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if from, err = d.LeftFor(ctx); err != nil {
		return file, "", err
	}
	if from == "" {
		return file, "", fault.New(fault.NotFound, "%s was not moved with --switch: there is nothing to take back", file)
	}
	return file, from, d.Leave(ctx, "")
}

// checkMoved refuses a source that was worked with after it was moved: what it has done
// since is not in the database, and whoever switches now would lose it. head is its last
// event.
func checkMoved(ctx context.Context, from *db.DB, target Options, head int64) error {
	d, err := db.Open(ctx, db.Options{DSN: storeOptions(target).DSN, ReadOnly: true, Logger: target.Logger})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	eventAt := func(d *db.DB) (id string, newest int64, err error) {
		err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, `SELECT COALESCE((SELECT id FROM events WHERE position = $1), ''),
				(SELECT value FROM heads WHERE name = 'log')`, head).Scan(&id, &newest)
		})
		return id, newest, err
	}
	here, _, err := eventAt(from)
	if err != nil {
		return err
	}
	there, newest, err := eventAt(d)
	if err != nil {
		return err
	}
	if newest >= head && (there == here || there == "") { // one that is not there any more was forgotten
		return nil
	}
	return fault.New(fault.Conflict, "the store was moved to this database before, and %s was worked with since: what it did then is not there",
		target.Instance.StateDB()).
		WithHint("move it to a new, empty database; or, if the database is the one that is right, let store in the configuration name it")
}

// StoreState says where the store of an instance is.
type StoreState struct {
	Store       string `json:"store"`                  // "sqlite" or "postgres"
	Where       string `json:"where"`                  // the file, or the address without its password
	Schema      int64  `json:"schema,omitempty"`       // of the store
	Newest      int64  `json:"newest"`                 // that this ombud works with
	Bytes       int64  `json:"bytes,omitempty"`        // on PostgreSQL about
	Head        int64  `json:"head,omitempty"`         // the last event
	Active      string `json:"active,omitempty"`       // on PostgreSQL: the daemon that has it now
	ActiveSince int64  `json:"active_since,omitempty"` // Unix µs by the server's clock
	Problem     string `json:"problem,omitempty"`      // why no more can be told
}

// LookAtStore tells about the store of an instance, whoever works with it.
func LookAtStore(ctx context.Context, o Options) (out StoreState, err error) {
	so := storeOptions(o)
	so.LockFile, so.ReserveFile, so.ReadOnly = "", "", true
	out = StoreState{Store: "sqlite", Where: o.Instance.StateDB()}
	if out.Newest, err = db.NewestSchema(); err != nil {
		return out, err
	}
	if o.Config.Config.Store.Postgres.Set() {
		out.Store, out.Where = "postgres", db.ShowDSN(so.DSN)
	} else if _, err := os.Stat(out.Where); errors.Is(err, fs.ErrNotExist) {
		out.Problem = "it is not there yet: ombud up makes it"
		return out, nil
	}
	if err := out.look(ctx, so); err != nil {
		out.Problem = err.Error()
		if hint := fault.HintOf(err); hint != "" {
			out.Problem += ": " + hint
		}
	}
	return out, nil
}

func (s *StoreState) look(ctx context.Context, so db.Options) error {
	d, err := db.Open(ctx, so)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return err
	}
	s.Schema, s.Bytes = snap.Schema, snap.Size
	snap.Close()
	if h, there, err := d.Active(ctx); err != nil {
		return err
	} else if there {
		s.Active, s.ActiveSince = h.Name, h.Since
	}
	err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT value FROM heads WHERE name = 'log'").Scan(&s.Head)
	})
	if err != nil {
		return err
	}
	to, err := d.LeftFor(ctx)
	if err == nil && to != "" {
		err = errLeft(s.Where, to)
	}
	return err
}
