package audit

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// CheckpointEvery is after how many entries a chain is signed.
const CheckpointEvery = 1000

// chainCounter numbers the chains of all nodes.
const chainCounter = "audit.chain"

// Audit writes this node's chain. It is safe for concurrent use.
type Audit struct {
	db    *db.DB
	vault *vault.Vault
	key   []byte
	sign  ed25519.PrivateKey
	node  string
	every int64
	log   *slog.Logger
	hide  func(string) string // nil: nothing is hidden

	mu    sync.Mutex             // Start and Stop only: never waited for by the writer
	state atomic.Pointer[writer] // nil until Start and from Stop on
}

// writer is the chain that is being written.
type writer struct {
	chain string
	epoch int64
	start link // the chain's opening, with seq 0
}

// Option changes an Audit while it is made.
type Option func(*Audit)

// Hide has every text of an entry changed before it is recorded. What is recorded is
// signed, stored readable and exported as it is, so this is the last place where a
// value that must not be shown can be taken out.
func Hide(fn func(string) string) Option { return func(a *Audit) { a.hide = fn } }

// New returns the audit of one node. It records nothing before Start.
func New(d *db.DB, v *vault.Vault, node string, log *slog.Logger, options ...Option) *Audit {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Audit{db: d, vault: v, key: v.AuditKey(), sign: v.SigningKey(), node: text(node), every: CheckpointEvery, log: log}
	for _, o := range options {
		o(a)
	}
	return a
}

// Start opens a chain, which names the end of the node's chain before. Calling it
// again while started does nothing.
func (a *Audit) Start(ctx context.Context) error { return a.start(ctx, nil) }

func (a *Audit) start(ctx context.Context, restored *Restored) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.Load() != nil {
		return nil
	}
	var o opening
	var l link
	err := a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		o, l, err = a.open(ctx, tx, restored)
		return err
	})
	if err != nil {
		return fmt.Errorf("open an audit chain: %w", err)
	}
	a.state.Store(&writer{chain: o.Chain, epoch: o.Epoch, start: link{hash: l.hash, mac: l.mac}})
	a.log.Info("audit chain opened", "chain", o.Chain, "epoch", o.Epoch)
	return nil
}

func (a *Audit) open(ctx context.Context, tx *db.Tx, restored *Restored) (opening, link, error) {
	o := opening{Chain: id.New("aud"), Node: a.node, Epoch: 1, At: tx.Now(), Every: a.every, Restored: restored}
	if restored != nil {
		if err := restored.check(ctx, tx); err != nil {
			return o, link{}, err
		}
	}
	var epoch int64
	var prevOpening link
	err := tx.QueryRow(ctx, `SELECT chain, epoch, hash, mac FROM audit_chains WHERE node = $1 ORDER BY epoch DESC LIMIT 1`,
		a.node).Scan(&o.PrevName, &epoch, &prevOpening.hash, &prevOpening.mac)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return o, link{}, err
	default:
		o.Epoch = epoch + 1
		end, err := lastEntry(ctx, tx, o.PrevName, prevOpening)
		if err != nil {
			return o, link{}, err
		}
		o.PrevSeq, o.PrevHash = end.seq, hex.EncodeToString(end.hash)
	}
	last, err := lastOpening(ctx, tx)
	if err != nil {
		return o, link{}, err
	}
	if o.Number, err = tx.Next(ctx, chainCounter); err != nil {
		return o, link{}, err
	}
	opening, err := canonical(o)
	if err != nil {
		return o, link{}, err
	}
	l := last.next(opening, a.key)
	_, err = tx.Exec(ctx, `INSERT INTO audit_chains (number, chain, node, epoch, opening, hash, mac, signature)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		o.Number, o.Chain, o.Node, o.Epoch, opening, l.hash, l.mac, ed25519.Sign(a.sign, openingMessage(l.hash)))
	tx.Notify(checkpointTopic)
	return o, l, err
}

func lastOpening(ctx context.Context, q db.Q) (link, error) {
	l := genesis()
	err := q.QueryRow(ctx, `SELECT number, hash, mac FROM audit_chains ORDER BY number DESC LIMIT 1`).Scan(&l.seq, &l.hash, &l.mac)
	if errors.Is(err, sql.ErrNoRows) {
		return genesis(), nil
	}
	return l, err
}

// lastEntry is the end of a chain: its last entry, or how it began if it has none.
func lastEntry(ctx context.Context, q db.Q, chain string, start link) (link, error) {
	l := link{hash: start.hash, mac: start.mac}
	err := q.QueryRow(ctx, `SELECT seq, hash, mac FROM audit WHERE chain = $1 ORDER BY seq DESC LIMIT 1`, chain).Scan(&l.seq, &l.hash, &l.mac)
	if errors.Is(err, sql.ErrNoRows) {
		return link{hash: start.hash, mac: start.mac}, nil
	}
	return l, err
}

// AppendTx records e as part of tx: if the entry cannot be written, neither is
// what it records. Before Start and after Stop it is Unavailable; Conflict if a
// newer process of this node has taken over.
func (a *Audit) AppendTx(ctx context.Context, tx *db.Tx, e Entry) (Ref, error) {
	w := a.state.Load()
	if w == nil {
		return Ref{}, fault.New(fault.Unavailable, "the audit is not started")
	}
	reg := a.register(tx, w)
	v, err := reg.Get(ctx)
	if err != nil {
		return Ref{}, fmt.Errorf("audit %s: %w", e.Kind, err)
	}
	prev := v.(link)
	at := tx.Now()
	entry, err := a.record(w.chain, prev.seq+1, at, e)
	if err != nil {
		return Ref{}, fmt.Errorf("audit %s: %w", e.Kind, err)
	}
	l := prev.next(entry, a.key)
	// Without a chain, as when a newer one was opened, the row is refused.
	if err := tx.Later(ctx, nil, `INSERT INTO audit (chain, seq, at, entry, hash, mac)
		VALUES (CASE WHEN (SELECT max(epoch) FROM audit_chains WHERE node = $7) = $8 THEN $1 END, $2, $3, $4, $5, $6)`,
		w.chain, l.seq, at, entry, l.hash, l.mac, a.node, w.epoch); err != nil {
		return Ref{}, fmt.Errorf("audit %s: %w", e.Kind, err)
	}
	reg.Set(l)
	if l.seq%a.every == 0 {
		if err := a.checkpoint(ctx, tx, w.chain, l); err != nil {
			return Ref{}, err
		}
	}
	return Ref{Chain: w.chain, Seq: l.seq, Hash: l.hash}, nil
}

// register holds the end of the chain for a batch. There is nothing to flush: the
// entries themselves are the record.
func (a *Audit) register(tx *db.Tx, w *writer) *db.Register {
	return tx.Own("audit.head:"+w.chain, func(ctx context.Context, tx *db.Tx) (any, error) {
		if err := a.newest(ctx, tx, w); err != nil {
			return nil, err
		}
		return lastEntry(ctx, tx, w.chain, w.start)
	}, func(context.Context, *db.Tx, any) error { return nil })
}

// newest is a Conflict if a newer process has opened a chain.
func (a *Audit) newest(ctx context.Context, tx *db.Tx, w *writer) error {
	var newest int64
	if err := tx.QueryRow(ctx, `SELECT max(epoch) FROM audit_chains WHERE node = $1`, a.node).Scan(&newest); err != nil {
		return err
	}
	if newest != w.epoch {
		return fault.New(fault.Conflict, "a newer process of node %q has opened a chain", a.node)
	}
	return nil
}

// text is a field as it is recorded.
func (a *Audit) text(s string) string {
	if a.hide != nil {
		s = a.hide(s)
	}
	return text(s)
}

func (a *Audit) record(chain string, seq, at int64, e Entry) (string, error) {
	r := record{
		Chain: chain, Seq: seq, At: at, Kind: a.text(e.Kind), Actor: a.text(e.Actor), Subject: a.text(e.Subject), Tool: a.text(e.Tool),
		InputMAC: hex.EncodeToString(e.InputMAC), Outcome: a.text(e.Outcome), Reason: a.text(e.Reason),
		DurationUS: e.DurationUS, CostMicroUSD: e.CostMicroUSD, Count: e.Count, Run: a.text(e.Run), Step: a.text(e.Step),
	}
	if len(e.Scopes) > 0 {
		parts := make([][]byte, len(e.Scopes))
		for i, s := range e.Scopes {
			r.Scopes = append(r.Scopes, a.text(redact(s)))
			parts[i] = []byte(s)
		}
		r.ScopeMAC = hex.EncodeToString(a.vault.MAC("audit.scope", parts...))
	}
	return canonical(r)
}

func (a *Audit) checkpoint(ctx context.Context, tx *db.Tx, chain string, l link) error {
	_, err := tx.Exec(ctx, `INSERT INTO audit_checkpoints (chain, seq, at, hash, signature) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (chain, seq) DO NOTHING`,
		chain, l.seq, tx.Now(), l.hash, ed25519.Sign(a.sign, checkpointMessage(chain, l.seq, l.hash)))
	if err != nil {
		return fmt.Errorf("sign the audit chain at %d: %w", l.seq, err)
	}
	tx.Notify(checkpointTopic)
	return nil
}

// Sign signs the chain at its present end and returns that as an anchor, a line
// that can be kept anywhere and given to ReadAnchors.
func (a *Audit) Sign(ctx context.Context) (Ref, string, error) {
	w := a.state.Load()
	if w == nil {
		return Ref{}, "", fault.New(fault.Unavailable, "the audit is not started")
	}
	var last anchorLine
	err := a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := a.newest(ctx, tx, w); err != nil { // the register may be of a batch before
			return err
		}
		v, err := a.register(tx, w).Get(ctx)
		if err != nil {
			return err
		}
		if end := v.(link); end.seq > 0 {
			if err := a.checkpoint(ctx, tx, w.chain, end); err != nil {
				return err
			}
		}
		lines, err := anchorsAfter(ctx, tx, a.node, mark{epoch: w.epoch, seq: -1}, true)
		if err == nil {
			last = lines[len(lines)-1]
		}
		return err
	})
	if err != nil {
		return Ref{}, "", fmt.Errorf("anchor the audit chain: %w", err)
	}
	hash, err := hex.DecodeString(last.Hash)
	if err != nil {
		return Ref{}, "", err
	}
	text, err := canonical(last)
	return Ref{Chain: last.Chain, Seq: last.Seq, Hash: hash}, text, err
}

// Stop signs the end of the chain. Entries are refused from then on. Calling it
// again does nothing; after an error the chain stays open and it may be called
// again.
func (a *Audit) Stop(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.state.Swap(nil) // functions of transactions after ours find it closed
	if w == nil {
		return nil
	}
	err := a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := a.newest(ctx, tx, w); err != nil { // the register may be of a batch before
			return err
		}
		v, err := a.register(tx, w).Get(ctx)
		if err != nil {
			return err
		}
		if end := v.(link); end.seq > 0 {
			return a.checkpoint(ctx, tx, w.chain, end)
		}
		return nil
	})
	if err != nil {
		a.state.Store(w)
		return fmt.Errorf("close the audit chain: %w", err)
	}
	return nil
}
