package run

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// ReceiptFormat names the one format of receipt there is.
const ReceiptFormat = "ombud.receipt.v1"

// Receipt proves what a run was: every event with its public leaf, folded to the
// head that is signed. The leaves tell nothing of the contents; whoever has a
// content and its salt can show that it is the one meant.
type Receipt struct {
	Format     string         `json:"format"`
	Run        string         `json:"run"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name,omitempty"`
	Definition string         `json:"definition,omitempty"`
	State      State          `json:"state"`
	Created    int64          `json:"created_us"`
	Ended      int64          `json:"ended_us"`
	Steps      int            `json:"steps"`
	Unknown    int            `json:"unknown_steps"`
	CostMicro  int64          `json:"cost_microusd"`
	CostKnown  bool           `json:"cost_known"`
	Events     []ReceiptEvent `json:"events"`
	Head       string         `json:"head"`
	PublicKey  string         `json:"public_key"`
	Signature  string         `json:"signature,omitempty"` // Ed25519 over the receipt without it
}

// ReceiptEvent is one line of the fold.
type ReceiptEvent struct {
	Position int64  `json:"position"`
	Kind     string `json:"kind"`
	Leaf     string `json:"leaf"`
}

// Receipt makes the receipt of a run that has ended.
func (e *Engine) Receipt(ctx context.Context, id string) (Receipt, error) {
	rec, steps, err := e.Get(ctx, id)
	if err != nil {
		return Receipt{}, err
	}
	if !rec.State.Ended() {
		return Receipt{}, fault.New(fault.Conflict, "run %s is %s; a receipt is made when it has ended", id, rec.State)
	}
	r := Receipt{
		Format: ReceiptFormat, Run: rec.ID, Kind: rec.Kind, Name: rec.Name, Definition: rec.Definition, State: rec.State,
		Created: rec.Created, Ended: rec.Ended, Steps: len(steps), CostMicro: rec.Cost, CostKnown: rec.CostKnown,
		Head: hex.EncodeToString(rec.Head[:]), PublicKey: hex.EncodeToString(e.vault.PublicKey()),
	}
	for _, s := range steps {
		if s.State == Unknown {
			r.Unknown++
		}
	}
	if r.Events, err = e.receiptEvents(ctx, rec); err != nil {
		return r, err
	}
	signed, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	r.Signature = hex.EncodeToString(ed25519.Sign(e.vault.SigningKey(), signed))
	return r, nil
}

func (e *Engine) receiptEvents(ctx context.Context, rec Record) (out []ReceiptEvent, err error) {
	for version := int64(0); version < rec.Version; {
		evs, err := e.log.Stream(ctx, streamOf(rec.ID), version, page)
		if err != nil {
			return nil, err
		}
		if len(evs) == 0 {
			return nil, fault.New(fault.Verification, "run %s: events after version %d are missing", rec.ID, version)
		}
		for _, ev := range evs {
			out = append(out, ReceiptEvent{ev.Position, ev.Kind, hex.EncodeToString(ev.Leaf[:])})
			version = ev.Version
		}
	}
	return out, nil
}

// VerifyReceipt checks the format, the arithmetic and the signature of a receipt,
// without a store. Every byte counts but white space between the values: a key twice,
// in other letters or in another order is a receipt nobody signed. If key is nil the receipt's own key is used, which shows only
// that it is whole; the caller compares the key with the instance's.
func VerifyReceipt(data []byte, key ed25519.PublicKey) (Receipt, error) {
	var r Receipt
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fault.New(fault.Verification, "receipt: %w", err)
	}
	var given, signed bytes.Buffer
	if err := json.Compact(&given, data); err != nil { // what follows the receipt, too
		return r, fault.New(fault.Verification, "receipt: %w", err)
	}
	if text, err := json.Marshal(r); err != nil || json.Compact(&signed, text) != nil || !bytes.Equal(given.Bytes(), signed.Bytes()) {
		return r, fault.New(fault.Verification, "receipt: it says more, or otherwise, than its signature covers")
	}
	if r.Format != ReceiptFormat {
		return r, fault.New(fault.Verification, "receipt: format %q is not %s", r.Format, ReceiptFormat)
	}
	own, err := hex.DecodeString(r.PublicKey)
	if err != nil || len(own) != ed25519.PublicKeySize {
		return r, fault.New(fault.Verification, "receipt: its public key is not one")
	}
	if key == nil {
		key = own
	} else if !bytes.Equal(own, key) {
		return r, fault.New(fault.Verification, "receipt: it was signed with another key than the one given")
	}
	sig, err := hex.DecodeString(r.Signature)
	if err != nil {
		return r, fault.New(fault.Verification, "receipt: signature: %w", err)
	}
	unsigned := r
	unsigned.Signature = ""
	text, err := json.Marshal(unsigned)
	if err != nil {
		return r, err
	}
	if !ed25519.Verify(key, text, sig) {
		return r, fault.New(fault.Verification, "receipt: the signature does not hold")
	}
	return r, r.checkHead()
}

func (r Receipt) checkHead() error {
	var head [32]byte
	state := None
	for i, ev := range r.Events {
		leaf, err := hex.DecodeString(ev.Leaf)
		if err != nil || len(leaf) != 32 {
			return fault.New(fault.Verification, "receipt: event %d has no leaf", i+1)
		}
		if i > 0 && ev.Position <= r.Events[i-1].Position {
			return fault.New(fault.Verification, "receipt: event %d is out of order", i+1)
		}
		to, ok := next(state, ev.Kind)
		if !ok {
			return fault.New(fault.Verification, "receipt: event %d, %s, is not possible when %s", i+1, ev.Kind, orNone(state))
		}
		state = to
		head = foldLeaf(head, ev.Position, ev.Kind, [32]byte(leaf))
	}
	if hex.EncodeToString(head[:]) != r.Head {
		return fault.New(fault.Verification, "receipt: its events do not fold to its head")
	}
	if state != r.State {
		return fault.New(fault.Verification, "receipt: says %s, its events end %s", r.State, state)
	}
	return nil
}

// CheckReceipt compares a receipt with the store: every leaf is derived anew from
// the stored content where it has not been erased.
func (e *Engine) CheckReceipt(ctx context.Context, r Receipt) error {
	rec, _, err := e.Get(ctx, r.Run)
	if err != nil {
		return err
	}
	if hex.EncodeToString(rec.Head[:]) != r.Head {
		return fault.New(fault.Verification, "run %s: the store's head is not the receipt's", r.Run)
	}
	stored, err := e.receiptEvents(ctx, rec) // reading an event derives its leaf anew
	if err != nil {
		return err
	}
	if !slices.Equal(stored, r.Events) {
		return fault.New(fault.Verification, "run %s: the store's events are not the receipt's", r.Run)
	}
	return nil
}

// StepAudits calls fn with every audit reference that steps hold, so that a chain
// whose end was cut off shows.
func (e *Engine) StepAudits(ctx context.Context, fn func(run, step string, ref AuditRef) error) error {
	type row struct {
		run, step string
		ref       AuditRef
	}
	for last := (row{}); ; {
		var rows []row
		err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			rows, err = db.All(ctx, q, func(r *db.Rows) (x row, err error) {
				err = r.Scan(&x.run, &x.step, &x.ref.Chain, &x.ref.Seq, &x.ref.Hash)
				return x, err
			}, `SELECT run, name, audit_chain, audit_seq, audit_hash FROM steps
				WHERE (run, name) > ($1, $2) AND audit_chain <> '' ORDER BY run, name LIMIT $3`, last.run, last.step, page)
			return err
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, x := range rows {
			if err := fn(x.run, x.step, x.ref); err != nil {
				return err
			}
			last = x
		}
	}
}
