package db

import (
	"context"
	"strconv"
)

// Register is a value that lives for one batch: the head of a counter or a chain
// that many callers of a batch advance. It is loaded at its first use, put back
// when a caller is rolled back, and flushed once before the commit.
type Register struct {
	tx    *Tx
	name  string
	load  func(context.Context, *Tx) (any, error)
	flush func(context.Context, *Tx, any) error
	value any
	state regState
}

type regState uint8

const (
	regEmpty regState = iota
	regLoaded
	regDirty
)

// Register returns the batch's register of that name. The functions of its first
// user are kept. Values must be immutable: Set a new one, never change one.
func (tx *Tx) Register(name string, load func(context.Context, *Tx) (any, error), flush func(context.Context, *Tx, any) error) *Register {
	for _, r := range tx.b.regs {
		if r.name == name {
			r.tx = tx
			return r
		}
	}
	r := &Register{tx: tx, name: name, load: load, flush: flush}
	tx.b.regs = append(tx.b.regs, r)
	return r
}

// Get returns the value, loading it at the first use in the batch.
func (r *Register) Get(ctx context.Context) (any, error) {
	if r.state == regEmpty {
		v, err := r.load(ctx, r.tx)
		if err != nil {
			return nil, err
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

func (b *batch) depthName() string { return strconv.Itoa(b.depth) }
