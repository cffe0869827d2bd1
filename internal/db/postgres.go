package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"net/url"
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
// does not hold the log's counter for ever.
func openPostgres(dsn string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
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
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	return stdlib.OpenDB(*cfg), nil
}

// redactDSN is the address without the password, for messages.
func redactDSN(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		head, _, _ := strings.Cut(dsn, ":")
		return head + ":…"
	}
	u.RawQuery = ""
	return u.Redacted()
}

// channelName is the one NOTIFY channel; the payload is a list of topics.
const channelName = "ombud"

// announce sends one NOTIFY a batch. It takes effect at the commit.
func (d *DB) announce(ctx context.Context, b *batch) error {
	if !d.postgres || len(b.topics) == 0 {
		return nil
	}
	seen := map[string]bool{}
	var list []string
	for _, t := range b.topics {
		if !seen[t] {
			seen[t] = true
			list = append(list, t)
		}
	}
	payload := strings.Join(list, " ")
	if len(payload) > 7000 { // PostgreSQL's limit is 8000 bytes; polling finds the rest
		payload = payload[:7000]
		payload = payload[:strings.LastIndexByte(payload, ' ')]
	}
	_, err := b.s.exec(ctx, "SELECT pg_notify('"+channelName+"', $1)", payload)
	if err != nil {
		return d.dialect.classify(err)
	}
	return nil
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
	conn, err := pgx.Connect(ctx, l.dsn)
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
