package db

import (
	"context"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Register is a value that lives for one batch: the head of a counter or a chain
// that many callers of a batch advance. It is loaded at its first use, put back
// when a caller is rolled back, and flushed once before the commit.
type Register struct {
	tx    *Tx
	key   registerKey
	load  func(context.Context, *Tx) (any, error)
	flush func(context.Context, *Tx, any) error
	value any
	state regState
	own   bool // nobody but this process moves it: its value is good for the next batch too
}

// registerKey keeps the store's own counters apart from the registers of others.
type registerKey struct{ kind, name string }

type regState uint8

const (
	regEmpty regState = iota
	regLoaded
	regDirty
)

// Register returns the batch's register of that name. The functions of its first
// user are kept. Values must be immutable: Set a new one, never change one.
func (tx *Tx) Register(name string, load func(context.Context, *Tx) (any, error), flush func(context.Context, *Tx, any) error) *Register {
	key := registerKey{"", name}
	if r := tx.b.register(key); r != nil {
		r.tx = tx
		return r
	}
	return tx.addRegister(key, load, flush)
}

// Own is Register for a value that only this process moves: it is loaded once and
// then kept from batch to batch, as long as every one of them is committed.
func (tx *Tx) Own(name string, load func(context.Context, *Tx) (any, error), flush func(context.Context, *Tx, any) error) *Register {
	r := tx.Register(name, load, flush)
	r.own = tx.b.db.postgres || tx.b.db.alone()
	return r
}

// alone reports whether nobody else writes to the store, whatever they are.
func (d *DB) alone() bool { return !d.postgres && d.lockPath != "" }

// kept is what the last batches left in a register of this process's own.
func (b *batch) kept(r *Register) (any, bool) {
	if !r.own {
		return nil, false
	}
	v, there := b.db.kept[r.key]
	return v, there
}

// keep lets the values that are this process's own serve the next batch.
func (b *batch) keep() {
	if b.db.postgres {
		key := registerKey{"head", logCounter}
		b.db.kept[key], b.db.lastCommit = b.head, time.Now()
		if r := b.register(key); r != nil && r.state != regEmpty {
			b.db.kept[key] = r.value
		}
	}
	for _, r := range b.regs {
		if r.own && r.state != regEmpty {
			b.db.kept[r.key] = r.value
		}
	}
}

func (tx *Tx) addRegister(key registerKey, load func(context.Context, *Tx) (any, error), flush func(context.Context, *Tx, any) error) *Register {
	r := &Register{tx: tx, key: key, load: load, flush: flush}
	tx.b.regs = append(tx.b.regs, r)
	return r
}

// register finds a register of this batch. There are only ever a few.
func (b *batch) register(key registerKey) *Register {
	for _, r := range b.regs {
		if r.key == key {
			return r
		}
	}
	return nil
}

// Get returns the value, loading it at the first use in the batch.
func (r *Register) Get(ctx context.Context) (any, error) {
	if r.state == regEmpty {
		v, kept := r.tx.b.kept(r)
		if !kept {
			var err error
			if v, err = r.load(ctx, r.tx); err != nil {
				return nil, err
			}
		}
		r.value, r.state = v, regLoaded
	}
	return r.value, nil
}

// Set replaces the value; it is flushed before the commit.
func (r *Register) Set(v any) { r.value, r.state = v, regDirty }

// snapshot is what a rollback to a savepoint puts back.
type snapshot struct {
	values []any
	states []regState
	after  int
	topics int
}

func (b *batch) snapshot() snapshot {
	s := snapshot{after: len(b.after), topics: len(b.topics)}
	if len(b.regs) == 0 {
		return s
	}
	s.values, s.states = make([]any, 0, len(b.regs)), make([]regState, 0, len(b.regs))
	for _, r := range b.regs {
		s.values = append(s.values, r.value)
		s.states = append(s.states, r.state)
	}
	return s
}

func (b *batch) restore(s snapshot) {
	b.after, b.topics = b.after[:s.after], b.topics[:s.topics]
	for i, r := range b.regs {
		if i < len(s.values) {
			r.value, r.state = s.values[i], s.states[i]
		} else {
			r.value, r.state = nil, regEmpty
		}
	}
}

// maxFlushRounds bounds how often a flush may move another register again.
const maxFlushRounds = 8

// flush writes the registers that were moved. The flush of one may move another,
// also one that was flushed before it.
func (b *batch) flush(ctx context.Context, tx *Tx) error {
	for range maxFlushRounds {
		moved := false
		for i := 0; i < len(b.regs); i++ { //nolint:intrange // a flush may add registers
			r := b.regs[i]
			if r.state != regDirty {
				continue
			}
			moved = true
			r.tx, r.state = tx, regLoaded
			err := r.flush(ctx, tx, r.value)
			tx.c.settleRows()
			if err == nil {
				err = tx.c.err
			}
			if err != nil {
				return fmt.Errorf("flush register %s: %w", r.key.name, err)
			}
		}
		if !moved {
			return nil
		}
	}
	return fault.New(fault.Internal, "the registers of a batch move each other without end")
}
