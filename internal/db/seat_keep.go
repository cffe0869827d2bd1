package db

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// keep renews the lease four times in its length, on a connection of its own, so that
// a slow batch does not cost the seat. One that has run out and was not taken is
// renewed all the same: nobody else has done anything.
func (s *Seat) keep(ctx context.Context) {
	defer close(s.ended)
	tick := time.NewTicker(s.o.TTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.lost:
			s.disconnect(ctx)
			return
		case <-ctx.Done():
			return
		}
		held, err := s.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.o.Logger.Warn("renew the lease of the active node", "error", classifyPostgres(err))
			s.disconnect(ctx)
		case !held:
			s.lose()
		}
	}
}

func (s *Seat) renew(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.TTL/2)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return false, err
	}
	tag, err := s.conn.Exec(ctx, `UPDATE leases SET expires = GREATEST(expires, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $3)
		WHERE name = $1 AND fence = $2`, seatName, s.fence, s.o.TTL.Microseconds())
	return tag.RowsAffected() == 1, err
}

// lose is called by whoever finds that another node has the seat.
func (s *Seat) lose() { s.once.Do(func() { close(s.lost) }) }

// Lost is closed when another node has taken the seat: nothing that is written through
// it from before that on is stored.
func (s *Seat) Lost() <-chan struct{} { return s.lost }

// Fence is the number of this seat; every later one is greater.
func (s *Seat) Fence() int64 { return s.fence }

// ErrReplaced is what a writer is told when another node has taken its seat.
var ErrReplaced = fault.New(fault.Unavailable, "another daemon has become the active one of this store: nothing is written here any more").
	WithHint("ombud status shows which")

func (s *Seat) err() error {
	select {
	case <-s.lost:
		return ErrReplaced
	default:
		return nil
	}
}

// Release gives the seat back, so that another node need not wait for its end. Close
// the store first. It is safe to call twice.
func (s *Seat) Release(ctx context.Context) error {
	s.quit()
	<-s.ended
	if s.err() != nil {
		return nil //nolint:nilerr // there is nothing to give back
	}
	defer s.disconnect(ctx)
	err := s.giveBack(ctx)
	if err != nil && s.conn != nil && s.conn.IsClosed() { // it broke since the last renewal
		err = s.giveBack(ctx)
	}
	return classifyPostgres(err)
}

// giveBack frees the seat and tells who waits for it. It may be done twice.
func (s *Seat) giveBack(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	_, err := s.conn.Exec(ctx, "DELETE FROM leases WHERE name = $1 AND fence = $2", seatName, s.fence)
	if err == nil {
		_, err = s.conn.Exec(ctx, "SELECT pg_notify('"+channelName+"', $1)", seatTopic)
	}
	return err
}

// Active returns who has the seat of a store that is open, false if nobody does.
func (d *DB) Active(ctx context.Context) (h Holder, there bool, err error) {
	if !d.postgres {
		return h, false, nil
	}
	err = d.Read(ctx, func(ctx context.Context, q Q) error {
		found, err := readHolder(q.QueryRow(ctx, selectHolder, seatName, seatKey))
		if found != nil {
			h, there = *found, found.Expires > found.now
		}
		return err
	})
	return h, there, err
}
