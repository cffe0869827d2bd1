package db

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// Several daemons may know one PostgreSQL store; one of them, the active, writes. Its
// right to do so is a seat: a row of leases with a fence, whose end is reckoned with
// the server's clock.
//
//	(nobody) ── take ──▶ held ── renew ──▶ held ── release ──▶ (nobody)
//	                      └── time runs out ──▶ to be taken, by anyone ── take ──▶ held
//
// The end of the lease says only when another node may take the seat. Whether a node
// may write, its fence says: every batch reads it after it has got the row that all
// batches hold to their commit, and a seat is taken while holding that row too. So no
// batch of one node and no taking of another overlap, and a node that was paused, or
// cut off, writes nothing from the commit of the next taker on, whatever its own
// clock says.
const (
	seatName = "ombud.active"
	seatKey  = "ombud.active" // of meta: who holds it, for people
	// seatTopic is notified when the seat is given back.
	seatTopic = "seat"
)

// seatTTL is how long a silent active keeps its seat. It is longer than writerIdle:
// when it has run out, the server has ended what a paused writer had open.
const seatTTL = 6 * time.Second

// writerIdle is after what time without a statement the server ends a transaction of
// the writer of a node with a seat. Its functions take 50 ms at most.
const writerIdle = 4 * time.Second

// SeatOptions say who wants to be the active.
type SeatOptions struct {
	DSN string // of PostgreSQL
	// Home names the place of which this process holds the lock: whoever had the seat
	// from there is dead. It must be another in every installation; "" if there is none.
	Home string
	// Name is what people know the process by.
	Name string
	// Waiting is told who has the seat, first when it is found taken and then whenever
	// somebody else has it. Without it TakeSeat does not wait.
	Waiting func(Holder)
	// TTL is how long the seat is kept without a word. Default 8 s.
	TTL    time.Duration
	Logger *slog.Logger
	// Moving is for who moves a store to the database.
	Moving bool
}

// Holder is who has the seat. Times are Unix microseconds of the server's clock.
type Holder struct {
	Name    string `json:"name"`
	Since   int64  `json:"since"`
	Expires int64  `json:"-"`
	Fence   int64  `json:"-"`

	owner string
	now   int64
}

// Seat is the right of this process to write to a store. It is safe for concurrent use.
type Seat struct {
	o     SeatOptions
	owner string
	fence int64

	conn      *pgx.Conn // of TakeSeat, then of the loop that renews
	connected time.Time
	once      sync.Once
	lost      chan struct{} // closed when another node has it
	quit      context.CancelFunc
	ended     chan struct{}
}

// TakeSeat waits until this process may be the active one, or tells who is, as
// Unavailable, if it is not to wait. It writes nothing while another has the seat. An
// empty database is given its tables.
func TakeSeat(ctx context.Context, o SeatOptions) (_ *Seat, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TTL <= 0 {
		o.TTL = seatTTL
	}
	s := &Seat{o: o, owner: o.Home + "/" + id.New("seat"), lost: make(chan struct{}), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			s.disconnect(ctx)
		}
	}()
	told := ""
	for {
		h, err := s.try(ctx)
		if err == nil && h == nil {
			loop, quit := context.WithCancel(context.Background())
			s.quit = quit
			go s.keep(loop)
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch {
		case err != nil && (o.Waiting == nil || !fault.Is(err, fault.Unavailable)):
			return nil, err
		case err != nil:
			if err.Error() != told { // once, not with each try
				told = err.Error()
				o.Logger.Warn("wait to be the active node", "error", err, "hint", fault.HintOf(err))
			}
			s.disconnect(ctx)
		case o.Waiting == nil:
			return nil, h.refusal()
		case h.owner != told:
			told = h.owner
			o.Waiting(*h)
		}
		s.await(ctx, h)
	}
}

func (h *Holder) refusal() error {
	return fault.New(fault.Unavailable, "the store has an active daemon: %s", h.Name).
		WithHint("ask that one, or end it with ombud stop there")
}

// await waits until it is worth trying again: somebody has let go, the lease has run
// out, or a second has gone.
func (s *Seat) await(ctx context.Context, h *Holder) {
	pause := time.Second
	if h != nil {
		pause = min(pause, max(10*time.Millisecond, time.Duration(h.Expires-h.now)*time.Microsecond))
	}
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	for s.conn != nil {
		n, err := s.conn.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() == nil {
				break // the connection; the next try tells
			}
			return
		}
		if strings.Contains(n.Payload, seatTopic) {
			return
		}
	}
	<-ctx.Done()
}

// try takes the seat if it is free and says who has it if not.
func (s *Seat) try(ctx context.Context) (*Holder, error) {
	if err := s.connect(ctx); err != nil {
		return nil, classifyPostgres(err)
	}
	h, err := s.look(ctx)
	if err != nil {
		return nil, classifyPostgres(err)
	}
	if h != nil && !s.free(h) {
		return h, nil
	}
	h, err = s.take(ctx)
	return h, classifyPostgres(err)
}

// free reports whether a seat may be taken from its holder. A lease that has run out
// while we could not see the server may have an active that could not either, so it
// is given the time to come back.
func (s *Seat) free(h *Holder) bool {
	switch {
	case s.o.Home != "" && strings.HasPrefix(h.owner, s.o.Home+"/"):
		return true
	case h.Expires > h.now:
		return false
	}
	return time.Since(s.connected) > s.o.TTL/2
}

func (s *Seat) connect(ctx context.Context) error {
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	cfg, err := postgresConfig(s.o.DSN)
	if err != nil {
		return err
	}
	// A server that swallows everything must not hold whoever renews for long.
	cfg.ConnectTimeout = min(cfg.ConnectTimeout, max(s.o.TTL/2, 2*time.Second))
	cfg.RuntimeParams["lock_timeout"] = "10000"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channelName); err != nil {
		_ = conn.Close(ctx)
		return err
	}
	s.conn, s.connected = conn, time.Now()
	return nil
}

func (s *Seat) disconnect(ctx context.Context) {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // the server notices at the latest
	s.conn = nil
}

// look reads who has the seat; nil is nobody. A store of a schema that this program
// does not know is refused here, before anybody relies on this node.
func (s *Seat) look(ctx context.Context) (*Holder, error) {
	var tables, moving bool
	err := s.conn.QueryRow(ctx, "SELECT to_regclass('leases') IS NOT NULL AND to_regclass('meta') IS NOT NULL, to_regclass('"+moveTable+"') IS NOT NULL").
		Scan(&tables, &moving)
	if err != nil {
		return nil, err
	}
	if moving && !s.o.Moving {
		return nil, errHalfMoved
	}
	if !tables || s.o.Moving { // a move that was cut off may have left some of the tables
		if err := makeSchema(ctx, s.o); err != nil {
			return nil, err
		}
	}
	var have int64
	if err := s.conn.QueryRow(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&have); err != nil {
		return nil, err
	}
	if newest, err := NewestSchema(); err != nil || have > newest {
		return nil, errors.Join(err, newerSchema(have, newest))
	}
	return readHolder(s.conn.QueryRow(ctx, selectHolder, seatName, seatKey))
}

const selectHolder = `SELECT l.owner, l.fence, l.expires, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, COALESCE(m.value, '{}')
	FROM leases l LEFT JOIN meta m ON m.key = $2 WHERE l.name = $1`

// readHolder reads a row of selectHolder; nil is that there is none.
func readHolder(row interface{ Scan(dest ...any) error }) (*Holder, error) {
	var h Holder
	var text string
	err := row.Scan(&h.owner, &h.Fence, &h.Expires, &h.now, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody has it
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal([]byte(text), &h) != nil || h.Name == "" {
		h.Name = "a node of which nothing is known"
	}
	return &h, nil
}

// makeSchema gives a database its tables that is empty or, where a store is moved to
// it, has some. No daemon can have a seat there.
func makeSchema(ctx context.Context, o SeatOptions) error {
	d := newDB(Options{DSN: o.DSN, Logger: o.Logger, Moving: o.Moving})
	defer d.release()
	if err := d.openPools(o.DSN); err != nil {
		return err
	}
	if err := d.checkStore(ctx); err != nil {
		return err
	}
	return d.migrate(ctx, o.DSN, "")
}

// take takes the seat, or says who was faster. It holds the row that every batch
// holds: what the last holder has under way is over before, or does not come to be.
func (s *Seat) take(ctx context.Context) (*Holder, error) {
	tx, err := s.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var head string
	if err := tx.QueryRow(ctx, "SELECT name FROM heads WHERE name = 'log' FOR UPDATE").Scan(&head); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return nil, missingHead()
		}
		return nil, err
	}
	h, err := readHolder(tx.QueryRow(ctx, selectHolder+" FOR UPDATE OF l", seatName, seatKey))
	switch {
	case err != nil:
		return nil, err
	case h != nil && h.owner == s.owner: // the commit of an earlier try was not answered
		s.fence = h.Fence
		return nil, nil //nolint:nilnil // taken
	case h != nil && !s.free(h):
		return h, nil
	}
	var now int64
	err = tx.QueryRow(ctx, `INSERT INTO heads (name, value, at) VALUES ('lease.fence', 1, 0)
		ON CONFLICT (name) DO UPDATE SET value = heads.value + 1
		RETURNING value, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`).Scan(&s.fence, &now)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(Holder{Name: s.o.Name, Since: now})
	if err != nil {
		return nil, err
	}
	for _, q := range []struct {
		text string
		args []any
	}{
		{`INSERT INTO leases (name, owner, fence, expires) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, expires = excluded.expires`,
			[]any{seatName, s.owner, s.fence, now + s.o.TTL.Microseconds()}},
		{`INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, []any{seatKey, string(text)}},
	} {
		if _, err := tx.Exec(ctx, q.text, q.args...); err != nil {
			return nil, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, fmt.Errorf("take the seat: %w", err)
	}
	return nil, nil //nolint:nilnil // taken
}
