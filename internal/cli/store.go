package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) storeCmd() *cobra.Command {
	status := a.storeStatusCmd()
	return byDefault(a.noun(spec{
		use:   "store",
		short: "where everything is kept, and moving it to PostgreSQL",
		long: `A store is a SQLite file in the state directory, or a database on a PostgreSQL server
that several daemons know: one is active, the others wait as standby.`,
		example: "ombud store status\nombud store migrate --to postgres://ombud@db.example.com/ombud",
	}, status, a.storeMigrateCmd()), status)
}

func (a *app) storeStatusCmd() *cobra.Command {
	return a.command(spec{
		use: "status", short: "which store it is, its schema and who is active on it",
		long:    "Looks at the store itself, with and without a daemon. Exits 1 if it cannot be looked into.",
		example: "ombud store status --json",
	}, func(ctx context.Context, _ []string) error {
		if a.roof.StoreStatus == nil {
			return notHere("look at the store")
		}
		p, err := a.place()
		if err != nil {
			return err
		}
		res, err := a.roof.StoreStatus(ctx, p)
		if err != nil {
			return err
		}
		err = a.show("store-status/1", res, func(p *page) {
			p.field("store", res.Store+", "+res.Where)
			if res.Problem != "" {
				p.field("problem", p.warn(res.Problem))
				return
			}
			p.field("schema", fmt.Sprintf("%d, as this ombud has it", res.Schema))
			p.field("size", size(res.Bytes))
			p.field("events", fmt.Sprint(res.Head))
			switch {
			case res.Active != "":
				p.field("active", res.Active+", since "+p.clock(res.ActiveSince))
			case res.Store == "postgres":
				p.field("active", "nobody")
			}
		})
		if err == nil && res.Problem != "" {
			return answered{1}
		}
		return err
	})
}

// storeMigrateResult is the answer of `store migrate --json`.
type storeMigrateResult struct {
	daemon.MovedStore
	Line     string `json:"line"`               // for the configuration
	Config   string `json:"config"`             // the file it belongs into
	Switched bool   `json:"switched"`           // it is in there
	Password bool   `json:"password,omitempty"` // the address has one, which the line has not
}

type migrateFlags struct {
	to, file, env string
	change, back  bool
}

func (a *app) storeMigrateCmd() *cobra.Command {
	var f migrateFlags
	c := a.command(spec{
		use:   "migrate",
		short: "move the SQLite store to an empty PostgreSQL database",
		long: `Copies every row to the database, compares each table by count and hash, and verifies
events, runs and the audit log there. No daemon may run meanwhile. It can be
interrupted at any time and started again: it goes on where it was. The SQLite file is
only read, and stays. With --switch it is marked when all is verified, and no daemon
starts on it by mistake; --take-back takes the mark away, for who goes back to the file.

The address must not hold a password on the command line, where every user of the
machine could see it: give the address in a file or a variable, or leave the password
to PGPASSFILE or PGPASSWORD.`,
		example: "ombud store migrate --to postgres://ombud@db.example.com/ombud --switch\nombud store migrate --to-file /run/secrets/ombud-store\nombud store migrate --to-env OMBUD_STORE",
	}, func(ctx context.Context, _ []string) error {
		if f.back {
			return a.storeTakeBack(ctx)
		}
		return a.storeMigrate(ctx, f)
	})
	c.Flags().StringVar(&f.to, "to", "", "the `address`: postgres://user@host/database")
	c.Flags().StringVar(&f.file, "to-file", "", "a `file` with the address in its first line")
	c.Flags().StringVar(&f.env, "to-env", "", "the `name` of a variable with the address")
	c.Flags().BoolVar(&f.change, "switch", false, "let the configuration name the database when all is verified")
	c.Flags().BoolVar(&f.back, "take-back", false, "let daemons work with the SQLite file again, as it was when it was moved")
	for _, other := range []string{"to", "to-file", "to-env", "switch"} {
		c.MarkFlagsMutuallyExclusive("take-back", other)
	}
	return c
}

// address is where to move to.
func (f migrateFlags) address(getenv func(string) string) (string, error) {
	given := 0
	for _, s := range []string{f.to, f.file, f.env} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return "", fault.New(fault.Usage, "say where the store goes with one of --to, --to-file and --to-env").WithHint("ombud store migrate --help")
	}
	switch {
	case f.file != "":
		text, err := os.ReadFile(f.file)
		if err != nil {
			return "", fault.New(fault.NotFound, "the address: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSpace(line), nil
	case f.env != "":
		if getenv(f.env) == "" {
			return "", fault.New(fault.NotFound, "the variable %s is not set", f.env)
		}
		return getenv(f.env), nil
	}
	if _, has := withoutPassword(f.to); has {
		return "", fault.New(fault.Usage, "an address with a password does not belong on the command line, where others can see it").
			WithHint("use --to-file or --to-env, or leave the password to PGPASSFILE or PGPASSWORD")
	}
	return f.to, nil
}

// withoutPassword takes the password out of an address, wherever it may be.
func withoutPassword(dsn string) (shown string, has bool) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", true // nothing of what cannot be read is shown
	}
	if u.User != nil {
		if _, has = u.User.Password(); has {
			u.User = url.User(u.User.Username())
		}
	}
	q := u.Query()
	for _, key := range []string{"password", "sslpassword"} {
		if q.Has(key) {
			has = true
			q.Del(key)
			u.RawQuery = q.Encode()
		}
	}
	return u.String(), has
}

func (a *app) storeMigrate(ctx context.Context, f migrateFlags) error {
	if a.roof.MoveStore == nil {
		return notHere("move the store")
	}
	dsn, err := f.address(a.getenv)
	if err != nil {
		return err
	}
	from, err := a.loadConfig(config.Override{Flag: "--from", Key: "store", Value: "sqlite"})
	if err != nil {
		return err
	}
	to, err := a.loadConfig(config.Override{Flag: "--to", Key: "store", Value: dsn})
	if err != nil {
		return err
	}
	if !to.Config.Store.Postgres.Set() {
		return fault.New(fault.Usage, "the store goes to PostgreSQL: postgres://user@host/database")
	}
	bar := a.newBar()
	res := storeMigrateResult{Config: a.where.ConfigFile()}
	res.MovedStore, err = a.roof.MoveStore(ctx, a.placeOf(from), to, f.change, func(table string, rows int64) {
		_ = bar.note(wire.BackupProgress{Phase: fmt.Sprintf("copying %s, %d rows", table, rows)})
	})
	bar.end()
	if err != nil {
		return err
	}
	shown, has := withoutPassword(dsn)
	res.Line, res.Password = "store: "+shown, has
	if f.change {
		if err := a.setStore(res.Line); err != nil {
			return fmt.Errorf("the store was moved and its file is marked, but the configuration is as it was and needs the line %q: %w", res.Line, err)
		}
		res.Switched = true
	}
	return a.show("store-migrate/1", res, res.page)
}

// storeTakeBackResult is the answer of `store migrate --take-back --json`.
type storeTakeBackResult struct {
	Store string `json:"store"`    // the file
	From  string `json:"moved_to"` // the database that has what was done since
}

func (a *app) storeTakeBack(ctx context.Context) error {
	if a.roof.TakeBackStore == nil {
		return notHere("take the store back")
	}
	loaded, err := a.loadConfig(config.Override{Flag: "--take-back", Key: "store", Value: "sqlite"})
	if err != nil {
		return err
	}
	var res storeTakeBackResult
	if res.Store, res.From, err = a.roof.TakeBackStore(ctx, a.placeOf(loaded)); err != nil {
		return err
	}
	return a.show("store-take-back/1", res, func(p *page) {
		p.line("%s, daemons may work with %s again", p.good("ok"), res.Store)
		p.line("%s", p.warn("what was done on "+res.From+" since it was moved is not in it"))
		p.line("%s", p.faint("let store in the configuration say sqlite"))
	})
}

func (res storeMigrateResult) page(p *page) {
	if res.Already {
		p.line("%s, it was moved to %s before", p.good("ok"), res.To)
	} else {
		p.line("%s, %d rows in %d tables are in %s", p.good("ok"), res.Rows, len(res.Tables), res.To)
		p.line("%s", p.faint(fmt.Sprintf("counts and hashes are those of %s; events to %d, runs and the audit log verify; in %s", res.Source, res.Head, span(micros(res.DurationUS)))))
	}
	if res.Switched {
		p.line("%s now says   %s", res.Config, res.Line)
	} else {
		p.line("to work with it, put into %s", res.Config)
		p.line("  %s", res.Line)
	}
	if res.Password {
		p.line("%s", p.warn("the password is not in that line: give it to the daemon in PGPASSFILE or PGPASSWORD, or the whole address in OMBUD_STORE"))
	}
	if res.Switched {
		p.line("%s", p.faint("the SQLite file stays and is marked as moved: no daemon starts on it; remove it when you no longer need it"))
		return
	}
	p.line("%s", p.faint("the SQLite file stays as it is; remove it when you no longer need it"))
}

var storeLine = regexp.MustCompile(`(?m)^store[ \t]*:.*$`)

// setStore puts the line into the configuration file, in the place of the one that is
// there, if what comes out can be read.
func (a *app) setStore(line string) error {
	path := a.where.ConfigFile()
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	text, err := os.ReadFile(path)
	mode := fs.FileMode(0o600)
	switch {
	case err == nil:
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if storeLine.Match(text) {
		text = storeLine.ReplaceAllLiteral(text, []byte(line))
	} else {
		text = append([]byte(line+"\n"), text...)
	}
	if err := a.where.MakeDirs(); err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, text, mode); err != nil { //nolint:gosec // beside the file the person names
		return err
	}
	if _, err := a.loadConfigFile(next); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return os.Rename(next, path)
}
