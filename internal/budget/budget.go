package budget

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// Limit is a cap in millionths of a US dollar. The zero Limit caps nothing; a set
// one of 0 lets nothing be spent.
type Limit struct {
	Set      bool
	MicroUSD int64
}

// At returns the limit of so many millionths of a dollar.
func At(microUSD int64) Limit { return Limit{Set: true, MicroUSD: microUSD} }

// Limits are the caps of the instance or of an agent.
type Limits struct {
	Day   Limit
	Month Limit
}

// Config holds the caps.
type Config struct {
	Instance Limits
	Agents   map[string]Limits // by name; an agent that is not in it has only the instance's
	Run      Limit             // of each run with all its children: a turn
	Zone     *time.Location    // whose midnight begins a day; default time.Local
}

// Budget keeps the budget of one store. It is safe for concurrent use.
type Budget struct {
	db  *db.DB
	cfg Config
}

// New returns the budget of d.
func New(d *db.DB, c Config) *Budget {
	if c.Zone == nil {
		c.Zone = time.Local
	}
	return &Budget{db: d, cfg: c}
}

// Reserve says who wants to make a call and what it may cost.
type Reserve struct {
	Run      string
	Root     string // the run whose allowance a child shares; "" for Run itself
	Apart    bool   // it has a limit of its own, and the one of a run does not hold for it
	Step     string
	Agent    string // "" for the instance alone
	Provider string // of the model, for the report
	Model    string
	Amount   int64 // millionths of a US dollar, the most it may cost; 0 if that is not known
	Known    bool  // whether it has a price
}

// window is one row of the totals a call counts in.
type window struct {
	node, period string
	kind         string // "day", "month", "run", for people
	limit        Limit
}

// windows are in one order for everybody, so that two writers never wait for each
// other crosswise.
func (b *Budget) windows(agent, root, day string) []window {
	month := day[:len("2006-01")]
	var out []window
	if agent != "" {
		node, l := "agent:"+agent, b.cfg.Agents[agent]
		out = append(out, window{node, month, "month", l.Month}, window{node, day, "day", l.Day})
	}
	out = append(out, window{"instance", month, "month", b.cfg.Instance.Month}, window{"instance", day, "day", b.cfg.Instance.Day})
	if root != "" {
		out = append(out, window{"run:" + root, "run", "run", b.cfg.Run})
	}
	return out
}

func (b *Budget) day(at int64) string { return time.UnixMicro(at).In(b.cfg.Zone).Format(time.DateOnly) }

// sums are the totals of one window, or what is added to them.
type sums struct{ spent, reserved, possible, unknown int64 }

func (s sums) held() int64 { return s.spent + s.reserved + s.possible }

func (s sums) negated() sums { return sums{-s.spent, -s.reserved, -s.possible, -s.unknown} }

// add moves the totals of all windows at once and returns them as they are then.
func add(ctx context.Context, tx *db.Tx, windows []window, d sums) (map[window]sums, error) {
	var values []string
	args := []any{d.spent, d.reserved, d.possible, d.unknown}
	for _, w := range windows {
		args = append(args, w.node, w.period)
		values = append(values, fmt.Sprintf("($%d, $%d, CAST($1 AS BIGINT), CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT))",
			len(args)-1, len(args)))
	}
	rows, err := tx.Query(ctx, `INSERT INTO budget_totals (node, period, spent, reserved, possible, unknown) VALUES `+strings.Join(values, ", ")+`
		ON CONFLICT (node, period) DO UPDATE SET spent = budget_totals.spent + excluded.spent,
			reserved = budget_totals.reserved + excluded.reserved, possible = budget_totals.possible + excluded.possible,
			unknown = budget_totals.unknown + excluded.unknown
		RETURNING node, period, spent, reserved, possible, unknown`, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	out := map[window]sums{}
	for rows.Next() {
		var node, period string
		var s sums
		if err := rows.Scan(&node, &period, &s.spent, &s.reserved, &s.possible, &s.unknown); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(windows, func(w window) bool { return w.node == node && w.period == period })
		out[windows[i]] = s
	}
	return out, rows.Err()
}

// hold adds an amount to what is reserved if every limit allows it, else nothing.
func (b *Budget) hold(ctx context.Context, tx *db.Tx, windows []window, d sums, known bool) error {
	now, err := add(ctx, tx, windows, d)
	if err != nil {
		return err
	}
	var over error
	for _, w := range windows {
		if over = refuse(w, now[w], d, known); over != nil {
			break
		}
	}
	if over == nil {
		return nil
	}
	if _, err := add(ctx, tx, windows, d.negated()); err != nil {
		return err
	}
	return over
}

// refuse judges a window whose sums contain what the call adds.
func refuse(w window, s, added sums, known bool) error {
	amount := added.held()
	free := known && amount == 0
	usedUp := !known && s.held() >= w.limit.MicroUSD // there is nothing left for a price nobody knows
	if !w.limit.Set || free || s.held() <= w.limit.MicroUSD && !usedUp {
		return nil
	}
	return fault.New(fault.Denied, "over budget: %s may spend %s a %s; %s is spent, %s reserved, %s possibly spent, and the call may cost %s",
		w.node, USD(w.limit.MicroUSD), w.kind, USD(s.spent-added.spent), USD(s.reserved-added.reserved), USD(s.possible-added.possible),
		price(amount, known)).WithHint("%s", wayOut(w.kind))
}

func wayOut(kind string) string {
	return "raise the limit in the configuration, or wait for the next " + kind
}

// USD writes millionths of a dollar for people.
func USD(micro int64) string {
	sign := ""
	if micro < 0 {
		sign, micro = "-", -micro
	}
	text := fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6)
	for strings.HasSuffix(text, "0") && len(text)-strings.IndexByte(text, '.') > len(".00") {
		text = text[:len(text)-1]
	}
	return sign + "$" + text
}

func price(amount int64, known bool) string {
	if !known {
		return "an unknown amount"
	}
	return USD(amount)
}

// ReserveTx holds the amount against every limit above the call, in the
// transaction of its intent. Denied, naming node, window, limit, spent and
// reserved, if a limit does not allow it: then nothing is held and the
// transaction can go on.
func (b *Budget) ReserveTx(ctx context.Context, tx *db.Tx, r Reserve) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	day := b.day(tx.Now())
	if err := b.hold(ctx, tx, b.windows(r.Agent, r.Root, day), sums{reserved: r.Amount}, r.Known); err != nil {
		return "", err
	}
	return b.insert(ctx, tx, r, day)
}

func (r *Reserve) check() error {
	if r.Amount < 0 || r.Run == "" {
		return fault.New(fault.Internal, "reserve %d for step %q of run %q", r.Amount, r.Step, r.Run)
	}
	switch {
	case r.Apart:
		r.Root = ""
	case r.Root == "":
		r.Root = r.Run
	}
	if !r.Known {
		r.Amount = 0
	}
	return nil
}

func (b *Budget) insert(ctx context.Context, tx *db.Tx, r Reserve, day string) (string, error) {
	rid := id.New("rsv")
	_, err := tx.Exec(ctx, `INSERT INTO budget_reservations (id, run, root, step, agent, provider, model, day, at, state, priced,
			amount, actual, possible, calls, unknown, tokens_in, tokens_out, tokens_cache_read, tokens_cache_write)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open', $10, $11, 0, 0, 1, 0, 0, 0, 0, 0)`,
		rid, r.Run, r.Root, r.Step, r.Agent, r.Provider, r.Model, day, tx.Now(), count(r.Known), r.Amount)
	return rid, err
}

// SpendTx books a cost that nobody could reserve: it is known only now. It is
// never refused; what is spent is spent.
func (b *Budget) SpendTx(ctx context.Context, tx *db.Tx, r Reserve, actual int64, known bool) error {
	r.Amount = 0
	if err := r.check(); err != nil {
		return err
	}
	rid, err := b.insert(ctx, tx, r, b.day(tx.Now()))
	if err != nil {
		return err
	}
	return b.CommitTx(ctx, tx, rid, actual, known)
}

// reservation is what the totals need to know of a row.
type reservation struct {
	agent, root, day string
	priced, amount   int64
}

// move takes an open reservation to another state in one guarded statement. set
// continues the SET list and may use parameters from $2 on.
func (b *Budget) move(ctx context.Context, tx *db.Tx, rid, set string, args ...any) (r reservation, err error) {
	err = tx.QueryRow(ctx, `UPDATE budget_reservations SET `+set+` WHERE id = $1 AND state = 'open' RETURNING agent, root, day, priced, amount`,
		append([]any{rid}, args...)...).Scan(&r.agent, &r.root, &r.day, &r.priced, &r.amount)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fault.New(fault.Conflict, "reservation %s is not open", rid)
	}
	return r, err
}

func (b *Budget) settle(ctx context.Context, tx *db.Tx, r reservation, d sums) error {
	_, err := add(ctx, tx, b.windows(r.agent, r.root, r.day), d)
	return err
}

// CommitTx books what the call cost in place of what it had reserved. With known
// false, actual is a lower bound and the call is counted as of unknown cost.
// Conflict if the reservation is not open.
func (b *Budget) CommitTx(ctx context.Context, tx *db.Tx, rid string, actual int64, known bool) error {
	if actual < 0 {
		return fault.New(fault.Internal, "commit %d to reservation %s", actual, rid)
	}
	unknown := count(!known)
	r, err := b.move(ctx, tx, rid, "state = 'committed', actual = $2, unknown = unknown + $3", actual, unknown)
	if err != nil {
		return err
	}
	return b.settle(ctx, tx, r, sums{spent: actual, reserved: -r.amount, unknown: unknown})
}

// AtLeastTx ends the reservation of a call of which only a part is known: what it has cost
// at least is spent, what it may have cost beside that is possible cost, and the call is
// counted as of unknown cost.
func (b *Budget) AtLeastTx(ctx context.Context, tx *db.Tx, rid string, actual, possible int64) error {
	if actual < 0 || possible < 0 {
		return fault.New(fault.Internal, "commit %d and perhaps %d to reservation %s", actual, possible, rid)
	}
	r, err := b.move(ctx, tx, rid, "state = 'committed', actual = $2, possible = possible + $3, unknown = unknown + 1", actual, possible)
	if err != nil {
		return err
	}
	return b.settle(ctx, tx, r, sums{spent: actual, reserved: -r.amount, possible: possible, unknown: 1})
}

// RaiseTx holds so much more for a call under way. Denied if a limit does not allow it: the
// reservation is then as it was.
func (b *Budget) RaiseTx(ctx context.Context, tx *db.Tx, rid string, by int64) error {
	if by <= 0 {
		return fault.New(fault.Internal, "raise reservation %s by %d", rid, by)
	}
	r, err := b.move(ctx, tx, rid, "amount = amount + $2", by)
	if err != nil {
		return err
	}
	over := b.hold(ctx, tx, b.windows(r.agent, r.root, r.day), sums{reserved: by}, true)
	if !fault.Is(over, fault.Denied) {
		return over
	}
	if _, err := b.move(ctx, tx, rid, "amount = amount - $2", by); err != nil {
		return err
	}
	return over
}

// ReleaseTx gives back what was reserved for a call that was not made.
func (b *Budget) ReleaseTx(ctx context.Context, tx *db.Tx, rid string) error {
	r, err := b.move(ctx, tx, rid, "state = 'released', calls = calls - 1")
	if err != nil {
		return err
	}
	return b.settle(ctx, tx, r, sums{reserved: -r.amount})
}

// PossibleTx ends the reservation of a call of which nobody knows whether it was
// made: its amount is possible cost from then on, or of unknown cost if it has no price.
func (b *Budget) PossibleTx(ctx context.Context, tx *db.Tx, rid string) error {
	r, err := b.move(ctx, tx, rid, `state = 'committed', possible = possible + amount,
		unknown = unknown + 1 - priced`)
	if err != nil {
		return err
	}
	return b.settle(ctx, tx, r, sums{reserved: -r.amount, possible: r.amount, unknown: 1 - r.priced})
}

// RepeatTx is for a call that a crash interrupted and that is made again: the
// first is booked as possible cost and the amount is reserved anew. Denied if the
// limits do not allow another; the reservation is then as it was, still open, and
// the caller ends it with PossibleTx.
func (b *Budget) RepeatTx(ctx context.Context, tx *db.Tx, rid string) error {
	r, err := b.move(ctx, tx, rid, `possible = possible + amount, calls = calls + 1,
		unknown = unknown + 1 - priced`)
	if err != nil {
		return err
	}
	over := b.hold(ctx, tx, b.windows(r.agent, r.root, r.day), sums{possible: r.amount, unknown: 1 - r.priced}, r.priced == 1)
	if !fault.Is(over, fault.Denied) {
		return over
	}
	if _, err := b.move(ctx, tx, rid, `possible = possible - amount, calls = calls - 1,
		unknown = unknown - 1 + priced`); err != nil {
		return err
	}
	return over
}

// SettleTx books as possible cost what a run that has ended left reserved. It
// belongs in the transaction that ends the run.
func (b *Budget) SettleTx(ctx context.Context, tx *db.Tx, run string) error {
	open, err := db.All(ctx, tx, db.Column[string], "SELECT id FROM budget_reservations WHERE run = $1 AND state = 'open' ORDER BY id", run)
	if err != nil {
		return err
	}
	for _, rid := range open {
		if err := b.PossibleTx(ctx, tx, rid); err != nil {
			return err
		}
	}
	return nil
}

// Tokens is the use a model reported.
type Tokens struct {
	Input, Output, CacheRead, CacheWrite int64
}

// TokensTx adds what a model reported for a call, for the report only.
func (b *Budget) TokensTx(ctx context.Context, tx *db.Tx, rid string, t Tokens) error {
	n, err := tx.Exec(ctx, `UPDATE budget_reservations SET tokens_in = tokens_in + $2, tokens_out = tokens_out + $3,
			tokens_cache_read = tokens_cache_read + $4, tokens_cache_write = tokens_cache_write + $5 WHERE id = $1`,
		rid, t.Input, t.Output, t.CacheRead, t.CacheWrite)
	if err == nil && n == 0 {
		return fault.New(fault.NotFound, "no reservation %s", rid)
	}
	return err
}

func count(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
