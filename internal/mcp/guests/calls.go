package guests

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// CallKind is the kind of the runs that make the calls of clients.
const CallKind = "mcpcall"

// Bounds of the calls of a client.
const (
	maxInput = 1 << 20        // bytes
	maxKey   = 400            // bytes
	maxBusy  = 64             // calls waited for at a time
	maxWaits = 100            // calls it was told wait for a person
	askAgain = 24 * time.Hour // for which the same call is the question of what became of it
	keep     = 7 * 24 * time.Hour
)

// Request is a call a client wants made.
type Request struct {
	Client string
	Tool   string
	Input  json.RawMessage
	Key    string        // the same key is the same call; "" for a call that is sent once
	Wait   time.Duration // for a person
}

// callInput is what an mcpcall run is started with.
type callInput struct {
	Client string          `json:"client"`
	Tool   string          `json:"tool"`
	Input  json.RawMessage `json:"input"`
}

// Kind is the kind of run that makes calls of clients.
func (c *Clients) Kind() run.Kind {
	return run.Kind{Name: CallKind, Handle: c.handle, TellUnknown: true, Heard: true, Ended: c.callEnded}
}

// Call makes a call and waits for what it comes to. What the call came to, a refusal
// too, is in the answer; one of class Waiting names the approval that has to come first.
// Errors: Denied for a client that is none; Conflict for a key that came with another call
// before; Unavailable when too much is under way; or the store's.
func (c *Clients) Call(ctx context.Context, req Request) (out wire.JobCallResult, err error) {
	if len(req.Input) > maxInput || len(req.Key) > maxKey {
		return out, fault.New(fault.Invalid, "a call has at most %d bytes of input and %d of key", maxInput, maxKey)
	}
	if len(req.Input) == 0 || string(req.Input) == "null" {
		req.Input = json.RawMessage("{}")
	}
	if req.Key == "" {
		req.Key = id.New("key")
	}
	leave, err := c.enter(req.Client)
	if err != nil {
		return out, err
	}
	defer leave()
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		out.RunID, out.Duplicate, err = c.begin(ctx, tx, req)
		return err
	})
	if err != nil {
		return out, err
	}
	return c.await(ctx, req, out)
}

// enter counts a call that is waited for.
func (c *Clients) enter(name string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[name] >= maxBusy {
		return nil, fault.New(fault.Unavailable, "%d calls of %s%s are under way", maxBusy, Prefix, name).WithHint("wait for one of them")
	}
	c.busy[name]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.busy[name]--; c.busy[name] == 0 {
			delete(c.busy, name)
		}
	}, nil
}

// begin finds the call of the key, or the one that this asks about, or starts it.
func (c *Clients) begin(ctx context.Context, tx *db.Tx, req Request) (runID string, known bool, err error) {
	if there, err := c.there(ctx, tx, req.Client); err != nil || !there {
		return "", false, errors.Join(err, errToken)
	}
	key := c.Vault.Blind(vault.MCPCallKey, req.Client+"\x00"+req.Key)
	mac := c.Vault.MAC("mcp.call", []byte(req.Client), []byte(req.Tool), req.Input)
	var had []byte
	err = tx.QueryRow(ctx, "SELECT run, body_mac FROM mcp_calls WHERE client = $1 AND key = $2", req.Client, key).Scan(&runID, &had)
	switch {
	case err == nil && !bytes.Equal(had, mac):
		return "", false, fault.New(fault.Conflict, "another call was made under this id before").WithHint("a new call has a new id")
	case err == nil:
		return runID, true, nil
	case !errors.Is(err, sql.ErrNoRows):
		return "", false, err
	}
	runID, err = c.asked(ctx, tx, req.Client, mac)
	if err == nil && runID == "" {
		runID, err = c.Runs.StartTx(ctx, tx, run.Spec{
			Kind: CallKind, Name: req.Tool, Definition: "mcpcall.v1", Actor: Prefix + req.Client,
			Input: callInput{Client: req.Client, Tool: req.Tool, Input: req.Input},
		})
	} else {
		known = true
	}
	if err != nil {
		return "", false, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO mcp_calls (client, key, run, body_mac, waits, at) VALUES ($1, $2, $3, $4, 0, $5)", req.Client, key, runID, mac, tx.Now())
	return runID, known, err
}

func (c *Clients) there(ctx context.Context, q db.Q, name string) (bool, error) {
	var one int
	err := q.QueryRow(ctx, "SELECT 1 FROM mcp_clients WHERE name = $1 AND removed = 0", name).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// asked is the run of the same call that the client was told waits for a person and was
// not told the end of, "" if there is none. Unavailable if too many wait to take another.
func (c *Clients) asked(ctx context.Context, tx *db.Tx, client string, mac []byte) (string, error) {
	type waiting struct {
		run string
		mac []byte
	}
	list, err := db.All(ctx, tx, func(r *db.Rows) (w waiting, err error) {
		err = r.Scan(&w.run, &w.mac)
		return w, err
	}, "SELECT run, body_mac FROM mcp_calls WHERE client = $1 AND waits = 1 AND at > $2 ORDER BY at LIMIT $3", client, tx.Now()-askAgain.Microseconds(), maxWaits)
	if err != nil {
		return "", err
	}
	for _, w := range list {
		if bytes.Equal(w.mac, mac) {
			return w.run, nil
		}
	}
	if len(list) == maxWaits {
		return "", fault.New(fault.Unavailable, "%d calls of %s%s wait for the operator", maxWaits, Prefix, client).WithHint("ombud inbox shows them")
	}
	return "", nil
}

// await returns when the call has come to something, or waits for a person longer than
// the request does.
func (c *Clients) await(ctx context.Context, req Request, out wire.JobCallResult) (wire.JobCallResult, error) {
	rec, err := c.Runs.WaitOrAsked(ctx, out.RunID, req.Wait)
	switch {
	case err != nil:
		return out, err
	case rec.State.Ended():
		return c.answer(ctx, req, rec, out)
	}
	return c.waiting(ctx, rec, out)
}

// waiting is the answer while a person has to decide; from here on the same call asks
// what became of this one.
func (c *Clients) waiting(ctx context.Context, rec run.Record, out wire.JobCallResult) (wire.JobCallResult, error) {
	a, err := c.Approvals.Get(ctx, rec.WaitRef)
	if err != nil {
		return out, err
	}
	if err := c.markWaits(ctx, rec.ID, 1); err != nil {
		return out, err
	}
	out.Status, out.Class, out.Tool, out.Approval = string(act.Parked), fault.Waiting, a.Tool, a.ID
	out.Text = "not done: it waits for the operator's approval " + a.ID
	out.Label = label.Of(label.Own, label.OperatorOnly).String()
	return out, nil
}

func (c *Clients) markWaits(ctx context.Context, runID string, waits int) error {
	return c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE mcp_calls SET waits = $1 WHERE run = $2 AND waits <> $1", waits, runID)
		return err
	})
}

// answer is what a call that has ended came to.
func (c *Clients) answer(ctx context.Context, req Request, rec run.Record, out wire.JobCallResult) (wire.JobCallResult, error) {
	res := act.Result{Status: act.Failed, Tool: rec.Name, Text: rec.Error, Class: rec.ErrorClass, Label: label.Of(label.Own, label.OperatorOnly)}
	if rec.State == run.Completed {
		res = act.Result{}
		if err := json.Unmarshal(rec.Result, &res); err != nil {
			return out, fault.New(fault.Internal, "result of call %s: %w", rec.ID, err)
		}
	}
	out.Status, out.Class, out.Tool, out.Text, out.Cut = string(res.Status), res.Class, res.Tool, res.Text, res.Cut
	out.BlobID, out.Approval, out.Label = res.Blob, res.Approval, res.Label.String()
	if res.Status == act.Refused {
		out.Text += howToGrant(Prefix+req.Client, res.Reasons)
	}
	return out, c.markWaits(ctx, rec.ID, 0)
}

// howToGrant says what the operator would have to do.
func howToGrant(subject string, reasons []policy.Reason) string {
	var lines []string
	for _, r := range reasons {
		line := ""
		switch {
		case r.Effect != policy.Deny || r.Scope == "":
		case r.Code == policy.CodeTier:
			line = "No client of this kind can be given " + r.Scope + "."
		case r.Code == policy.CodeNoRule:
			line = fmt.Sprintf("The operator can grant it: ombud caps grant %s '%s'", subject, r.Scope)
		}
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n" + strings.Join(lines, "\n")
}

// handle is the handler of CallKind.
func (c *Clients) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	var in callInput
	if err := json.Unmarshal(r.Input(), &in); err != nil {
		return nil, fault.New(fault.Internal, "input of the call: %w", err)
	}
	const step = "call"
	if _, begun := r.Recorded(step); !begun {
		if err := c.Known(ctx, in.Client); err != nil {
			return nil, fault.New(fault.Denied, "the client that wanted this call was removed")
		}
	}
	auth, err := c.authority(ctx, in.Client)
	if err != nil {
		return nil, err
	}
	res, err := c.Act.Call(ctx, r, act.Call{
		Step: step, Tool: in.Tool, Input: in.Input, Authority: auth, Label: label.Of(label.Untrusted(auth.Subject), label.OperatorOnly), Patient: true,
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

// authority is what a client may do now.
func (c *Clients) authority(ctx context.Context, name string) (*act.Authority, error) {
	subject := Prefix + name
	held, err := c.Granted.For(ctx, subject, subject)
	if err != nil {
		return nil, err
	}
	in := c.Permit(subject, held)
	return &act.Authority{
		Subject: subject, Conversation: subject, Grants: in.Grants, Bounds: in.Bounds, Tier: in.Tier, Standing: in.Standing, Autonomy: in.Autonomy,
	}, nil
}

// Permit is what policy is asked about a call of a client, less the call.
func (c *Clients) Permit(subject string, held policy.Held) policy.Input {
	in := policy.Input{
		Subject: subject, Grants: policy.NewLayer("grants of "+subject, held.Rules), Bounds: held.Bounds, Standing: held.Standing,
		Autonomy: held.Autonomy, Tier: policy.SemiTrusted,
	}
	if in.Autonomy == nil {
		in.Autonomy = c.Usual
	}
	return in
}

// callEnded settles what a call leaves when it ends.
func (c *Clients) callEnded(ctx context.Context, tx *db.Tx, rec run.Record) error {
	if err := c.Budget.SettleTx(ctx, tx, rec.ID); err != nil {
		return err
	}
	return c.Approvals.WithdrawTx(ctx, tx, rec.ID, "the call has ended")
}

// stopCalls stops what a client that is removed still waits for.
func (c *Clients) stopCalls(ctx context.Context, tx *db.Tx, name, by string) error {
	const newest = 1000 // more than can be under way
	runs, err := db.All(ctx, tx, db.Column[string], "SELECT run FROM mcp_calls WHERE client = $1 ORDER BY at DESC LIMIT $2", name, newest)
	if err != nil {
		return err
	}
	for _, id := range runs {
		rec, err := c.Runs.RecordIn(ctx, tx, id)
		if fault.Is(err, fault.NotFound) || err == nil && rec.State.Ended() {
			continue
		}
		if err == nil {
			err = c.Runs.CancelTx(ctx, tx, id, by, "the client was removed")
		}
		if err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return nil
}

// Forget drops the keys of calls that nobody will send again.
func (c *Clients) Forget(ctx context.Context) error {
	_, err := c.DB.Drain(ctx, "DELETE FROM mcp_calls WHERE at IN (SELECT at FROM mcp_calls WHERE at < $1 ORDER BY at LIMIT 1000)", c.DB.Time()-keep.Microseconds())
	return err
}
