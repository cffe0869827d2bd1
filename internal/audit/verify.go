package audit

import (
	"bytes"
	"context"
	"crypto/hmac"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// page is how many rows one read takes.
const page = 1000

// Report says what a verification has looked at.
type Report struct {
	Chains      int64
	Entries     int64
	Checkpoints int64
	Restores    int64 // chains that say that the store before them came out of a backup
}

// Bad is the first place where the record does not hold. It is inside the error
// of class Verification; use errors.AsType. Seq 0 is the opening of the chain.
type Bad struct {
	Chain  string
	Seq    int64
	Reason string
}

func (b *Bad) Error() string {
	if b.Seq == 0 {
		return fmt.Sprintf("audit chain %s: %s", b.Chain, b.Reason)
	}
	return fmt.Sprintf("audit chain %s, entry %d: %s", b.Chain, b.Seq, b.Reason)
}

func bad(chain string, seq int64, format string, args ...any) error {
	return fault.New(fault.Verification, "%w", &Bad{chain, seq, fmt.Sprintf(format, args...)})
}

// reader is what verifying needs of a store: *db.DB.
type reader interface {
	Read(ctx context.Context, fn func(ctx context.Context, q db.Q) error) error
}

var _ reader = (*db.DB)(nil)

// Rows as they are stored.
type (
	chainRow struct {
		text           string
		hash, mac, sig []byte
	}
	entryRow struct {
		seq, at   int64
		text      string
		hash, mac []byte
	}
	checkpointRow struct {
		seq, at   int64
		hash, sig []byte
	}
)

// checker holds the record against itself, row by row in the order of the chains
// and within each of the entries, a checkpoint right after its entry.
type checker struct {
	keys   vault.Keys
	report Report
	list   link            // of the chain of chains
	nodes  map[string]ends // by node
	recent []ends          // of the newest chains, the last one last
	now    *opening        // chain being checked
	at     link            // its last entry
	signed int64           // its last checkpoint
	time   int64           // of its last entry
	sums   summer
}

// ends is how a node's newest chain ended.
type ends struct {
	epoch int64
	chain string
	last  link
}

func newChecker(keys vault.Keys) *checker {
	return &checker{keys: keys, list: genesis(), nodes: map[string]ends{}, sums: newSummer(keys.Audit)}
}

// open begins the next chain.
func (c *checker) open(r chainRow) error {
	if err := c.close(); err != nil {
		return err
	}
	var o opening
	if err := strict(r.text, &o); err != nil {
		return bad(numbered(c.list.seq+1), 0, "its opening cannot be read: %v", err)
	}
	want := c.list.next(r.text, c.keys.Audit)
	before := c.nodes[o.Node]
	switch {
	case o.Number != want.seq:
		return bad(o.Chain, 0, "it is number %d in the list of chains, where %d should be", o.Number, want.seq)
	case !bytes.Equal(r.hash, want.hash):
		return bad(o.Chain, 0, "the hash of its opening does not follow from the one before")
	case !c.macHolds(r.mac, want.mac):
		return bad(o.Chain, 0, "the MAC of its opening is wrong")
	case c.keys.Verify(openingMessage(r.hash), r.sig) != nil:
		return bad(o.Chain, 0, "the signature of its opening is not by key %s", c.keys.Fingerprint())
	case o.Every <= 0:
		return bad(o.Chain, 0, "it says it is never signed")
	case o.Epoch != before.epoch+1:
		return bad(o.Chain, 0, "it is start %d of node %q, where %d should be", o.Epoch, o.Node, before.epoch+1)
	case o.PrevName != before.chain:
		return bad(o.Chain, 0, "it follows chain %q, where %q should be", o.PrevName, before.chain)
	case o.PrevSeq > before.last.seq:
		return bad(before.chain, before.last.seq+1, "it is missing: the chain opened next says there were %d", o.PrevSeq)
	case o.PrevSeq < before.last.seq:
		return bad(before.chain, o.PrevSeq+1, "it was added after the end: the chain opened next says there were %d", o.PrevSeq)
	case o.PrevHash != hex.EncodeToString(before.last.hash):
		return bad(before.chain, before.last.seq, "the chain opened next names another hash")
	}
	if o.Restored != nil {
		if err := o.Restored.fits(o.Chain, c.list.seq, c.recent); err != nil {
			return err
		}
		c.report.Restores++
	}
	c.list = link{seq: want.seq, hash: r.hash, mac: r.mac}
	c.now, c.at, c.signed, c.time = &o, link{hash: r.hash, mac: r.mac}, 0, 0
	c.report.Chains++
	return nil
}

// entry checks the next entry of the chain.
func (c *checker) entry(r entryRow) error {
	chain, seq := c.now.Chain, c.at.seq+1
	if r.seq != seq {
		return bad(chain, seq, "it is missing: the next one is %d", r.seq)
	}
	if err := c.checkpointDue(); err != nil {
		return err
	}
	rec, err := readSpot(r.text)
	if err != nil {
		return bad(chain, seq, "it cannot be read: %v", err)
	}
	want := c.sums.next(c.at, r.text)
	switch {
	case !bytes.Equal(r.hash, want.hash):
		return bad(chain, seq, "its hash does not follow from the entry before and its text")
	case !c.macHolds(r.mac, want.mac):
		return bad(chain, seq, "its MAC is wrong")
	case rec.chain != chain || rec.seq != seq || rec.at != r.at:
		return bad(chain, seq, "it says it is entry %d of %s at %d", rec.seq, rec.chain, rec.at)
	case rec.at < c.time:
		return bad(chain, seq, "it is older than the entry before")
	}
	c.at, c.time = link{seq: seq, hash: r.hash, mac: r.mac}, rec.at
	c.report.Entries++
	return nil
}

// checkpoint checks one that must be for the entry just seen.
func (c *checker) checkpoint(r checkpointRow) error {
	chain := c.now.Chain
	switch {
	case r.seq > c.at.seq:
		return bad(chain, c.at.seq+1, "it is missing: a checkpoint says there were %d", r.seq)
	case r.seq < c.at.seq || r.seq == c.signed || r.seq == 0:
		return bad(chain, r.seq, "a checkpoint stands where none can be")
	case !bytes.Equal(r.hash, c.at.hash):
		return bad(chain, r.seq, "its checkpoint has another hash")
	case c.keys.Verify(checkpointMessage(chain, r.seq, r.hash), r.sig) != nil:
		return bad(chain, r.seq, "the signature of its checkpoint is not by key %s", c.keys.Fingerprint())
	}
	c.signed = r.seq
	c.report.Checkpoints++
	return nil
}

// checkpointDue holds the chain to being signed as often as it must be.
func (c *checker) checkpointDue() error {
	if c.at.seq > 0 && c.at.seq%c.now.Every == 0 && c.signed != c.at.seq {
		return bad(c.now.Chain, c.at.seq, "its checkpoint is missing")
	}
	return nil
}

// close ends the chain being checked.
func (c *checker) close() error {
	if c.now == nil {
		return nil
	}
	if err := c.checkpointDue(); err != nil {
		return err
	}
	last := ends{epoch: c.now.Epoch, chain: c.now.Chain, last: c.at}
	c.nodes[c.now.Node] = last
	if c.recent = append(c.recent, last); len(c.recent) > markedChains {
		c.recent = c.recent[1:]
	}
	c.now = nil
	return nil
}

// macHolds is true for an auditor without the key.
func (c *checker) macHolds(have, want []byte) bool {
	return c.keys.Audit == nil || hmac.Equal(have, want)
}

// strict reads canonical JSON: what would not be written so is not accepted.
func strict(text string, v any) error {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return err
	}
	again, err := canonical(v)
	if err == nil && again != text {
		err = errors.New("it is not in canonical form")
	}
	return err
}

// Verify holds the whole record of a store against itself, page by page, while it
// may be written on. keys.Audit nil checks as an auditor without secrets can. The
// error is of class Verification with a Bad inside; the report counts what held.
//
// An end cut off after the last checkpoint shows by VerifyRefs only, a store put
// back as a whole to an older state only by something outside of it.
func Verify(ctx context.Context, d reader, keys vault.Keys) (Report, error) {
	c := newChecker(keys)
	err := walk(ctx, d, c)
	return c.report, err
}

// visitor is given the whole record in order: a checker or an export.
type visitor interface {
	open(chainRow) error
	entry(entryRow) error
	checkpoint(checkpointRow) error
	close() error
}

func walk(ctx context.Context, d reader, v visitor) error {
	last, err := chainsKnown(ctx, d)
	if err != nil {
		return err
	}
	for number := int64(0); number < last; {
		rows, numbers, names, err := chainPage(ctx, d, number, last)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return bad(numbered(number+1), 0, "it is missing: the store has counted %d", last)
		}
		for i, r := range rows {
			if err := v.open(r); err != nil {
				return err
			}
			if err := walkChain(ctx, d, v, names[i]); err != nil {
				return err
			}
			number = numbers[i]
		}
	}
	return v.close()
}

// chainsKnown is how many chains there are. Those opened later are left out: the
// end of a chain is known for certain only when the next one was opened before.
func chainsKnown(ctx context.Context, d reader) (last int64, err error) {
	err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
		var counted int64
		err := q.QueryRow(ctx, `SELECT value FROM heads WHERE name = $1`, chainCounter).Scan(&counted)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := q.QueryRow(ctx, `SELECT COALESCE(max(number), 0) FROM audit_chains`).Scan(&last); err != nil {
			return err
		}
		if counted != last {
			return bad(numbered(min(counted, last)+1), 0, "the store has counted %d chains and the last is number %d", counted, last)
		}
		return nil
	})
	return last, err
}

// numbered names a chain whose name is not known.
func numbered(n int64) string { return fmt.Sprintf("number %d", n) }

func chainPage(ctx context.Context, d reader, after, last int64) (rows []chainRow, numbers []int64, names []string, err error) {
	err = d.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		rows, err = db.All(ctx, q, func(r *db.Rows) (c chainRow, err error) {
			var number, epoch int64
			var chain, node string
			if err := r.Scan(&number, &chain, &node, &epoch, &c.text, &c.hash, &c.mac, &c.sig); err != nil {
				return c, err
			}
			numbers, names = append(numbers, number), append(names, chain)
			var o opening
			if err := strict(c.text, &o); err == nil && (o.Number != number || o.Chain != chain || o.Node != node || o.Epoch != epoch) {
				return c, bad(chain, 0, "its columns are not what its opening says")
			}
			return c, nil
		}, `SELECT number, chain, node, epoch, opening, hash, mac, signature FROM audit_chains
			WHERE number > $1 AND number <= $2 ORDER BY number LIMIT $3`, after, last, int64(page))
		return err
	})
	return rows, numbers, names, err
}

// ahead is how many pages of a long chain are read while one is being checked.
const ahead = 2

// entryPage is a stretch of a chain with the checkpoints in it.
type entryPage struct {
	entries     []entryRow
	checkpoints []checkpointRow
	err         error
}

// walkChain visits the entries of one chain with their checkpoints. A page that is
// full is followed by others, which are read while it is visited; where one does
// not end at the number it should, they are read anew from there.
func walkChain(ctx context.Context, d reader, v visitor, chain string) error {
	ctx, cancel := context.WithCancel(ctx)
	var coming []chan entryPage
	drop := func() {
		for _, c := range coming {
			<-c
		}
		coming = nil
	}
	defer drop()
	defer cancel()
	read := func(after int64) {
		c := make(chan entryPage, 1)
		coming = append(coming, c)
		go func() { c <- readPage(ctx, d, chain, after) }()
	}
	read(0)
	for after := int64(0); ; {
		p := <-coming[0]
		coming = coming[1:]
		if p.err != nil {
			return p.err
		}
		full := len(p.entries) == page
		expected := after + page
		if full {
			if after = p.entries[page-1].seq; after != expected {
				drop()
			}
			for len(coming) < ahead {
				read(after + int64(len(coming))*page)
			}
		}
		if err := merge(v, p.entries, p.checkpoints); err != nil {
			return err
		}
		if !full {
			return nil
		}
	}
}

// readPage reads entries and their checkpoints in one snapshot, so that what is
// written meanwhile fits together.
func readPage(ctx context.Context, d reader, chain string, after int64) (p entryPage) {
	p.entries = make([]entryRow, 0, page)
	p.err = d.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		rows, err := q.Query(ctx, `SELECT seq, at, entry, hash, mac FROM audit WHERE chain = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
			chain, after, int64(page))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err below tells what went wrong
		for rows.Next() {
			var e entryRow
			if err := rows.Scan(&e.seq, &e.at, &e.text, &e.hash, &e.mac); err != nil {
				return err
			}
			p.entries = append(p.entries, e)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		upTo := int64(1) << 62 // after the last entry, whatever is left
		if len(p.entries) == page {
			upTo = p.entries[page-1].seq
		}
		p.checkpoints, err = db.All(ctx, q, func(r *db.Rows) (c checkpointRow, err error) {
			err = r.Scan(&c.seq, &c.at, &c.hash, &c.sig)
			return c, err
		}, `SELECT seq, at, hash, signature FROM audit_checkpoints WHERE chain = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`, chain, after, upTo)
		return err
	})
	return p
}

// merge visits each checkpoint after the entry it is for.
func merge(v visitor, entries []entryRow, checkpoints []checkpointRow) error {
	for _, e := range entries {
		for len(checkpoints) > 0 && checkpoints[0].seq < e.seq {
			if err := v.checkpoint(checkpoints[0]); err != nil {
				return err
			}
			checkpoints = checkpoints[1:]
		}
		if err := v.entry(e); err != nil {
			return err
		}
	}
	for _, c := range checkpoints {
		if err := v.checkpoint(c); err != nil {
			return err
		}
	}
	return nil
}

// VerifyRefs checks that every entry somebody holds a reference to is there with
// the same hash, and returns how many it looked at. It finds what a chain cannot
// show of itself: that its end was cut off.
func VerifyRefs(ctx context.Context, d reader, refs iter.Seq2[Ref, error]) (n int64, err error) {
	batch := make([]Ref, 0, page)
	flush := func() error {
		if err := verifyRefs(ctx, d, batch); err != nil {
			return err
		}
		n += int64(len(batch))
		batch = batch[:0]
		return nil
	}
	for ref, err := range refs {
		if err != nil {
			return n, err
		}
		if batch = append(batch, ref); len(batch) == page {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	return n, flush()
}

func verifyRefs(ctx context.Context, d reader, refs []Ref) error {
	return d.Read(ctx, func(ctx context.Context, q db.Q) error {
		for _, ref := range refs {
			var hash []byte
			err := q.QueryRow(ctx, `SELECT hash FROM audit WHERE chain = $1 AND seq = $2`, ref.Chain, ref.Seq).Scan(&hash)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				return bad(ref.Chain, ref.Seq, "it is missing: a step refers to it")
			case err != nil:
				return err
			case !bytes.Equal(hash, ref.Hash):
				return bad(ref.Chain, ref.Seq, "it has another hash than a step recorded")
			}
		}
		return nil
	})
}
