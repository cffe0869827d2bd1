package db

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/ombud-run/ombud/internal/fault"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migration is one numbered step of the schema, in the text both stores share.
type Migration struct {
	Version int64
	Name    string
	Text    string
}

// Migrations returns the schema's steps in order. Tests read the columns'
// classes (plain, blind, sealed) from their comments.
func Migrations() ([]Migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []Migration
	for _, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(path.Base(name), "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s: its name does not start with a number: %w", name, err)
		}
		out = append(out, Migration{Version: v, Name: path.Base(name), Text: string(text)})
	}
	return out, nil
}

// render turns the shared text into one store's: strict tables, rows kept in the
// order of a clustered key where it says so, and SQLite's type
// names there, PostgreSQL's own here.
func render(text string, postgres bool) []string {
	if postgres {
		// Byte order, as SQLite has it, and not that of the server's language.
		text = strings.NewReplacer(") /*strict*/;", ");", " TEXT", ` TEXT COLLATE "C"`).Replace(text)
	} else {
		text = strings.NewReplacer(" /*clustered*/\n) /*strict*/;", "\n) STRICT, WITHOUT ROWID;", ") /*strict*/;", ") STRICT;", " BIGINT", " INTEGER", " BYTEA", " BLOB").Replace(text)
	}
	var out []string
	for stmt := range strings.SplitSeq(stripComments(text), ";\n") {
		if stmt = strings.TrimSpace(stmt); stmt != "" {
			out = append(out, strings.TrimSuffix(stmt, ";"))
		}
	}
	return out
}

func stripComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		code, _, found := strings.Cut(line, "--")
		if found {
			code = strings.TrimRight(code, " \t") + "\n"
		}
		b.WriteString(code)
	}
	return b.String()
}

// migrate brings the schema up to date, after a copy of a SQLite store that holds
// an older one. A newer one is refused: an older ombud would not understand it.
//
// On PostgreSQL it is done under an advisory lock, so that nodes which start at
// the same time do not migrate at the same time, and without the limit of time
// that statements have otherwise.
func (d *DB) migrate(ctx context.Context, dsn, backupDir string) (err error) {
	pool := d.writePool
	if d.postgres {
		if pool, err = openPostgres(dsn, map[string]string{"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pool.Close()) }()
		lock, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }() // the pool's Close gives the lock back
		if _, err := lock.ExecContext(ctx, "SELECT pg_advisory_lock($1)", migrationLock); err != nil {
			return fmt.Errorf("wait for the migration of another node: %w", err)
		}
	}
	return d.migrateOn(ctx, pool, backupDir)
}

// asItIs refuses a store of another schema instead of migrating it, and lets nothing
// be written.
func (d *DB) asItIs(ctx context.Context) error {
	newest, err := NewestSchema()
	if err != nil {
		return err
	}
	var have int64
	if err := d.writePool.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&have); err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	switch {
	case have > newest:
		return newerSchema(have, newest)
	case have < newest:
		return fault.New(fault.Config, "the store has schema %d, this ombud works with %d", have, newest).
			WithHint("start its daemon with ombud up: it migrates the store")
	}
	d.Condemn(fault.New(fault.Conflict, "the store was opened to be read"))
	return nil
}

// migrationLock is the advisory lock's number: "ombud" in ASCII.
const migrationLock = 0x6f6d627564

func (d *DB) migrateOn(ctx context.Context, pool *sql.DB, backupDir string) error {
	steps := d.migrations
	if steps == nil {
		var err error
		if steps, err = Migrations(); err != nil {
			return err
		}
	}
	provider, err := d.provider(pool, steps)
	if err != nil {
		return err
	}
	have, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	newest := steps[len(steps)-1].Version
	switch {
	case have > newest:
		return newerSchema(have, newest)
	case have == newest:
		return nil
	case have > 0:
		if err := d.backupBefore(ctx, backupDir, have); err != nil {
			return err
		}
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the store: %w", err)
	}
	return nil
}

func (d *DB) provider(pool *sql.DB, steps []Migration) (*goose.Provider, error) {
	dialect := goose.DialectSQLite3
	if d.postgres {
		dialect = goose.DialectPostgres
	}
	var list []*goose.Migration
	for _, m := range steps {
		stmts := render(m.Text, d.postgres)
		list = append(list, goose.NewGoMigration(m.Version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			for _, stmt := range stmts {
				if _, err := tx.ExecContext(ctx, stmt); err != nil {
					return fmt.Errorf("%s: %w", m.Name, err)
				}
			}
			return nil
		}}, nil))
	}
	return goose.NewProvider(dialect, pool, nil, goose.WithGoMigrations(list...), goose.WithDisableGlobalRegistry(true))
}

// backupBefore copies a SQLite store before its schema changes. PostgreSQL has
// its own tools for that; we say so and go on.
func (d *DB) backupBefore(ctx context.Context, dir string, version int64) error {
	if d.postgres {
		d.log.Warn("the schema will be migrated; ombud does not back up PostgreSQL by itself", "from", version)
		return nil
	}
	if dir == "" {
		dir = filepath.Dir(d.path)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.New(fault.Permission, "make the backup directory: %w", err)
	}
	to := filepath.Join(dir, fmt.Sprintf("before-schema-%d-%s.db", version, d.now().UTC().Format("20060102T150405.000000")))
	if err := touchPrivate(to); err != nil {
		return err
	}
	if _, err := d.writePool.ExecContext(ctx, "VACUUM INTO $1", to); err != nil {
		return errors.Join(fmt.Errorf("back up before migrating: %w", err), os.Remove(to))
	}
	if err := syncFile(to); err != nil {
		return errors.Join(fmt.Errorf("back up before migrating: %w", err), os.Remove(to))
	}
	d.log.Info("backed up the store before migrating", "path", to, "from", version)
	return nil
}

// syncFile flushes a file and the directory that names it.
func syncFile(path string) error {
	for _, name := range []string{path, filepath.Dir(path)} {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = f.Sync()
		if runtime.GOOS == "windows" { // flushes no file opened for reading, and no directory
			err = nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
