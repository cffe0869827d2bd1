package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ombud-run/ombud/internal/fault"
)

// errBroken, returned from Conn.Raw, makes database/sql throw a connection away.
var errBroken = driver.ErrBadConn

// openPostgres returns a pool whose connections give up on a statement after 30
// seconds and whose idle transactions the server ends, so that a node that hangs
// does not hold the log's counter for ever. override replaces these.
func openPostgres(dsn string, override map[string]string) (*sql.DB, error) {
	cfg, err := postgresConfig(dsn)
	if err != nil {
		return nil, err
	}
	maps.Copy(cfg.RuntimeParams, override)
	return stdlib.OpenDB(*cfg), nil
}

func postgresConfig(dsn string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil { // not wrapped: it may repeat the password
		return nil, fault.New(fault.Config, "store %s: the address is not valid", redactDSN(dsn)).
			WithHint("write it as postgres://user@host:port/database")
	}
	for key, value := range map[string]string{
		"application_name":                    "ombud",
		"statement_timeout":                   "30000",
		"idle_in_transaction_session_timeout": "30000",
		"synchronous_commit":                  "on",
	} {
		if _, set := cfg.RuntimeParams[key]; !set {
			cfg.RuntimeParams[key] = value
		}
	}
	if v := cfg.RuntimeParams["synchronous_commit"]; !slices.Contains(durableCommits, v) {
		return nil, fault.New(fault.Config, "store %s: synchronous_commit=%s acknowledges what is not yet durable", redactDSN(dsn), v).
			WithHint("leave it out of the address")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	return cfg, nil
}

// durableCommits are the values of synchronous_commit that wait for our own
// server's disk; the stronger ones wait for a replica as well.
var durableCommits = []string{"on", "local", "remote_write", "remote_apply"}

// checkPostgres refuses a server we cannot rely on and warns of one that is set
// up to lose data.
func (d *DB) checkPostgres(ctx context.Context) error {
	var version int
	var encoding, fsync string
	var moving bool
	err := d.writePool.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
			current_setting('fsync'), to_regclass('`+moveTable+`') IS NOT NULL`).
		Scan(&version, &encoding, &fsync, &moving)
	if err != nil {
		return err
	}
	if moving && !d.moving {
		return errHalfMoved
	}
	if version < 130000 {
		return fault.New(fault.Config, "the PostgreSQL server has version %d; ombud needs 13 or newer", version/10000)
	}
	if encoding != "UTF8" {
		return fault.New(fault.Config, "the database has encoding %s; ombud needs UTF8", encoding).
			WithHint("create it with ENCODING 'UTF8'")
	}
	if fsync != "on" {
		d.log.Warn("the PostgreSQL server runs with fsync off: it loses data when its machine goes down")
	}
	return nil
}

// redactDSN is as much of an address as may be shown: never its password, and
// nothing of one that cannot be told apart.
func redactDSN(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Opaque != "" || u.Scheme == "" {
		if head, _, ok := strings.Cut(dsn, "://"); ok && len(head) < 16 {
			return head + "://…"
		}
		return "(address not shown)"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return fmt.Sprintf("%q", shown.String())
}

// ShowDSN is as much of an address as may be shown.
func ShowDSN(dsn string) string { return strings.Trim(redactDSN(dsn), `"`) }

// channelName is the one NOTIFY channel; the payload is a list of topics.
const channelName = "ombud"

// announce sends one NOTIFY a batch. It takes effect at the commit.
func (d *DB) announce(b *batch) error {
	if !d.postgres || len(b.topics) == 0 {
		return nil
	}
	slices.Sort(b.topics)
	return b.s.later(nil, "SELECT pg_notify('"+channelName+"', $1)", []any{payload(slices.Compact(b.topics))})
}

// payload joins topics up to PostgreSQL's limit of 8000 bytes; those left out are
// found by polling.
func payload(topics []string) string {
	var p strings.Builder
	for _, topic := range topics {
		if p.Len()+len(topic)+1 > 7900 {
			continue
		}
		p.WriteString(topic)
		p.WriteByte(' ')
	}
	return p.String()
}

// listener hears what other nodes announce. It reconnects for ever; while it is
// away, watchers are found by their own polling.
type listener struct {
	dsn     string
	signals *signals
	log     *slog.Logger
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

func newListener(dsn string, s *signals, log *slog.Logger) *listener {
	return &listener{dsn: dsn, signals: s, log: log}
}

func (l *listener) start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.done.Go(func() {
		for ctx.Err() == nil {
			err := l.runOnce(ctx)
			if ctx.Err() != nil {
				return
			}
			l.log.Warn("listen for notifications", "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
}

func (l *listener) stop() {
	l.cancel()
	l.done.Wait()
}

func (l *listener) runOnce(ctx context.Context) (err error) {
	cfg, err := postgresConfig(l.dsn)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channelName); err != nil {
		return err
	}
	l.signals.wakeAll() // what was announced while nobody listened
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		for topic := range strings.FieldsSeq(n.Payload) {
			l.signals.wake(topic)
		}
	}
}
