package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wholefile"
)

// A restore of the instance in its state directory:
//
//	nothing ── Extract, verified ──▶ restore.staging ── rename ──▶ restore.ready ── Settle ──▶ in place
//	   ▲                                  │
//	   └──────────── Settle ──────────────┘
//
// All of it under the instance's lock. The rename decides. Settle is run by whoever
// holds the lock next, before a store is opened, and can be cut off anywhere: what
// was there before is moved aside first, then what is ready is moved in, each file by
// a rename. What is moved aside stays.

// Plan says what is to become of a staged instance.
type Plan struct {
	Restore string `json:"restore"` // id
	Store   string `json:"store"`   // where the rows go: sqlite or postgres
	Aside   string `json:"aside"`   // name for what is replaced
}

// Open opens a backup for reading.
func Open(path string) (*os.File, int64, error) {
	f, err := os.Open(path) //nolint:gosec // the operator says which
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fault.New(fault.NotFound, "there is no backup %s", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, 0, fault.New(fault.Permission, "open the backup: %w", err)
	case err != nil:
		return nil, 0, readFault(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Invalid, "%s is not a file", path)
	}
	if err != nil {
		_ = f.Close() // only read
		return nil, 0, readFault(err)
	}
	return f, info.Size(), nil
}

// Verify reads a backup from end to end and checks every hash, the signature and the
// form. What is in the store is not looked at.
func Verify(ctx context.Context, path string, report func(Progress)) (Manifest, error) {
	f, size, err := Open(path)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	return Scan(ctx, &counted{r: f, total: size, phase: "verifying", report: report}, nil)
}

// counted tells how far a file was read.
type counted struct {
	r           io.Reader
	phase       string
	done, total int64
	told        int64
	report      func(Progress)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	if c.report != nil && c.done-c.told >= tell {
		c.told = c.done
		c.report(Progress{Phase: c.phase, Done: c.done, Total: c.total})
	}
	return n, err
}

// Extract makes the instance of a backup, whose manifest Verify has returned, in the
// directories of to, which must not exist. The store becomes a SQLite file whatever
// it was; what belongs to the key is left out unless keys is set.
func Extract(ctx context.Context, path string, m Manifest, to instance.Instance, keys bool, report func(Progress)) error {
	for _, dir := range []string{to.StateDir, to.ConfigDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return extractFault(err)
		}
	}
	newest, err := db.NewestSchema()
	if err != nil {
		return err
	}
	if m.Schema > newest {
		return fault.New(fault.Config, "the backup has schema %d, this ombud knows up to %d", m.Schema, newest).
			WithHint("install ombud %s, which wrote it, or a newer one", m.Ombud)
	}
	f, size, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	x := &extraction{to: to, keys: keys}
	read := func(ctx context.Context) error {
		got, err := Scan(ctx, &counted{r: f, total: size, phase: "unpacking", report: report}, func(name string, _ int64, r io.Reader) error {
			return x.member(ctx, name, r)
		})
		if err == nil && got.ID != m.ID {
			err = fault.New(fault.Conflict, "the backup was replaced while it was read")
		}
		return err
	}
	if m.Store != "postgres" {
		return read(ctx)
	}
	return db.Load(ctx, db.Options{DSN: "sqlite:" + to.StateDB()}, m.Schema, func(ctx context.Context, l *db.Loader) error {
		x.load = l
		return read(ctx)
	})
}

type extraction struct {
	to     instance.Instance
	keys   bool
	load   *db.Loader // nil: the store is pages
	tables []db.Table
}

func (x *extraction) member(ctx context.Context, name string, r io.Reader) error {
	switch key, isKey := strings.CutPrefix(name, partKey); {
	case name == partStore && x.load == nil:
		return writeNew(x.to.StateDB(), r)
	case name == partConfig:
		return writeNew(x.to.ConfigFile(), r)
	case isKey && x.keys:
		if !x.belongs(key) {
			return damaged(name, "this ombud knows no such file")
		}
		return writeNew(filepath.Join(x.to.StateDir, key), r)
	case name == partTables && x.load != nil:
		text, err := io.ReadAll(io.LimitReader(r, maxSmall))
		if err != nil {
			return readFault(err)
		}
		if err := json.Unmarshal(text, &x.tables); err != nil {
			return damaged(name, "%w", err)
		}
	case strings.HasPrefix(name, partRows) && x.load != nil:
		return x.rows(ctx, name, r)
	}
	return nil
}

// belongs reports whether a file of the key has a name this ombud gives.
func (x *extraction) belongs(key string) bool {
	for _, path := range x.to.StoreFiles() {
		if filepath.Base(path) == key && path != x.to.StateDB() && path != x.to.HomeFile() {
			return true
		}
	}
	return false
}

func (x *extraction) rows(ctx context.Context, name string, r io.Reader) error {
	_, table, _ := strings.Cut(strings.TrimPrefix(name, partRows), "-")
	for _, t := range x.tables {
		if t.Name != table {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(r, maxSmall))
		if err != nil {
			return readFault(err)
		}
		rows, err := parseRows(content, len(t.Columns))
		if err != nil {
			return damaged(name, "%w", err)
		}
		return x.load.Rows(ctx, t, rows)
	}
	return damaged(name, "its table is not described")
}

func writeNew(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // a name of the instance's own
	if err != nil {
		return extractFault(err)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	return extractFault(errors.Join(err, f.Close()))
}

// CopyFile copies a small private file to a place where there is none.
func CopyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return extractFault(err)
	}
	return writeNew(to, bytes.NewReader(content))
}

func extractFault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok || fault.Is(err, fault.Cancelled) {
		return err
	}
	class := fault.Unavailable
	if errors.Is(err, fs.ErrPermission) {
		class = fault.Permission
	}
	return fault.New(class, "restore: %w", err).WithHint("nothing was put in place; what was there is untouched")
}

// Room makes sure that there is room for what a restore makes.
func Room(dir string, m Manifest) error {
	var need int64
	for _, p := range m.Parts {
		need += p.Size
	}
	if m.Store == "postgres" {
		need *= 3 // rows, their indexes, and the log they are written through
	}
	return room(dir, need+need/8)
}

// Decide makes a staged instance the one to be put in place, by one rename.
func Decide(in instance.Instance, p Plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := writeNew(in.RestorePlan(in.StagingDir()), bytes.NewReader(text)); err != nil {
		return err
	}
	staged := in.Staged()
	for _, dir := range []string{staged.StateDir, staged.ConfigDir, in.StagingDir()} {
		if err := syncAll(dir); err != nil {
			return extractFault(err)
		}
	}
	failpoint.Hit("restore.decide.before")
	if err := os.Rename(in.StagingDir(), in.ReadyDir()); err != nil {
		return extractFault(err)
	}
	err = extractFault(db.SyncDir(in.StateDir))
	failpoint.Hit("restore.decide.after")
	return err
}

// syncAll flushes the files of a directory and itself.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := db.SyncFile(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return db.SyncDir(dir)
}

// Settle brings a restore to its end that was decided, and removes what is left of
// one that was not. The caller holds the lock of the instance and no store is open.
// A plan for PostgreSQL waits for SettleStore.
func Settle(in instance.Instance) (settled bool, err error) {
	if err := os.RemoveAll(in.StagingDir()); err != nil { //nolint:gosec // a name of the instance's own
		return false, extractFault(err)
	}
	p, there, err := planned(in)
	if err != nil || !there || p.Store == "postgres" {
		return false, err
	}
	err = unsettled(install(in, p))
	return err == nil, err
}

// SettleStore is the rest of Settle for PostgreSQL, whose rows are committed by
// themselves: restore is the id the open store says it was made by, "" if none.
func SettleStore(in instance.Instance, restore string) (settled bool, err error) {
	p, there, err := planned(in)
	if err != nil || !there {
		return false, err
	}
	if p.Restore == restore {
		err = unsettled(install(in, p))
		return err == nil, err
	}
	return false, extractFault(os.RemoveAll(in.ReadyDir()))
}

// unsettled tells of a restore that was decided that it stays so.
func unsettled(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.ClassOf(err), "the restore is decided and not all of it is in place: %w", err).
		WithHint("mend that, then start it with ombud up: it puts the rest in place")
}

// planned reports whether a restore was decided that is not in place.
func planned(in instance.Instance) (p Plan, there bool, err error) {
	text, err := os.ReadFile(in.RestorePlan(in.ReadyDir())) //nolint:gosec // a name of the instance's own
	if errors.Is(err, fs.ErrNotExist) {
		// Removing the directory was cut off, or there is none.
		return p, false, extractFault(os.RemoveAll(in.ReadyDir())) //nolint:gosec // a name of the instance's own
	}
	if err != nil {
		return p, false, extractFault(err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, false, fault.New(fault.Verification, "%s cannot be read: %w", in.RestorePlan(in.ReadyDir()), err).
			WithHint("move %s away and restore again", in.ReadyDir())
	}
	return p, true, nil
}

// install puts what is ready in place. It may be cut off and begun again.
func install(in instance.Instance, p Plan) error {
	moved := in.RestoreMoved(in.ReadyDir())
	if _, err := os.Lstat(moved); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // a name of the instance's own
		if err := moveAside(in, p); err != nil {
			return extractFault(err)
		}
		if err := writeNew(moved, strings.NewReader("")); err != nil {
			return err
		}
		failpoint.Hit("restore.moved")
	}
	ready := in.Ready()
	entries, err := os.ReadDir(ready.StateDir)
	if err != nil {
		return extractFault(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := os.Rename(filepath.Join(ready.StateDir, e.Name()), filepath.Join(in.StateDir, e.Name())); err != nil {
			return extractFault(err)
		}
		failpoint.Hit("restore.install")
	}
	if err := installConfig(in, ready); err != nil {
		return extractFault(err)
	}
	if err := db.SyncDir(in.StateDir); err != nil {
		return extractFault(err)
	}
	failpoint.Hit("restore.installed")
	// The plan goes first: without it the rest is only in the way.
	if err := os.Remove(in.RestorePlan(in.ReadyDir())); err != nil { //nolint:gosec // a name of the instance's own
		return extractFault(err)
	}
	return extractFault(os.RemoveAll(in.ReadyDir())) //nolint:gosec // a name of the instance's own
}

func moveAside(in instance.Instance, p Plan) error {
	aside := in.ReplacedDir(p.Aside)
	for _, path := range in.StoreFiles() {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // a name of the instance's own
			continue
		}
		if err := os.MkdirAll(aside, 0o700); err != nil { //nolint:gosec // a name of the instance's own
			return err
		}
		if err := os.Rename(path, filepath.Join(aside, filepath.Base(path))); err != nil { //nolint:gosec // a name of the instance's own
			return err
		}
		failpoint.Hit("restore.aside")
	}
	if _, err := os.Lstat(aside); err == nil { //nolint:gosec // a name of the instance's own
		if err := db.SyncDir(aside); err != nil {
			return err
		}
	}
	return db.SyncDir(in.StateDir)
}

// installConfig puts the configuration in place where there is none; where there is
// another one, that stays and the one of the backup is laid beside the store.
func installConfig(in, ready instance.Instance) error {
	content, err := os.ReadFile(ready.ConfigFile()) //nolint:gosec // a name of the instance's own
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	have, err := os.ReadFile(in.ConfigFile()) //nolint:gosec // a name of the instance's own
	if err == nil && bytes.Equal(have, content) {
		return nil
	}
	to, dir := in.RestoredConfig(), in.StateDir
	if errors.Is(err, fs.ErrNotExist) {
		to, dir = in.ConfigFile(), in.ConfigDir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return wholefile.Replace(to, content)
}
