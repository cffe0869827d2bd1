package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// markedChains is of how many of the newest chains the ends are marked: those of all
// nodes that may be writing.
const markedChains = tailChains

// Marks say where a record stood at one commit.
type Marks struct {
	Chains int64  `json:"chains"` // how many had been opened
	Heads  []Mark `json:"heads"`  // the ends of the newest, the last one last
}

// Mark is the end of a chain. Seq 0 is its opening.
type Mark struct {
	Chain string `json:"chain"`
	Seq   int64  `json:"seq"`
	Hash  string `json:"hash"`
}

// MarksIn reads where the record stands.
func MarksIn(ctx context.Context, q db.Q) (m Marks, err error) {
	type start struct {
		number int64
		chain  string
		link   link
	}
	newest, err := db.All(ctx, q, func(r *db.Rows) (s start, err error) {
		err = r.Scan(&s.number, &s.chain, &s.link.hash, &s.link.mac)
		return s, err
	}, `SELECT number, chain, hash, mac FROM audit_chains ORDER BY number DESC LIMIT $1`, int64(markedChains))
	if err != nil {
		return m, err
	}
	for _, s := range newest {
		m.Chains = max(m.Chains, s.number)
		end, err := lastEntry(ctx, q, s.chain, s.link)
		if err != nil {
			return m, err
		}
		m.Heads = append(m.Heads, Mark{Chain: s.chain, Seq: end.seq, Hash: hex.EncodeToString(end.hash)})
	}
	slices.Reverse(m.Heads)
	return m, nil
}

func (m Marks) equal(o Marks) bool { return m.Chains == o.Chains && slices.Equal(m.Heads, o.Heads) }

// Restored is what the first chain after a restore says of what is before it: that
// the record goes on from the end of a backup, and that another one, of the store the
// backup was made of, may go on from there too.
type Restored struct {
	Restore string `json:"restore"` // id of the restore
	Backup  string `json:"backup"`  // id of the backup
	Made    int64  `json:"made"`    // when the backup was made
	Marks   Marks  `json:"marks"`   // where the record stood in it
}

// StartRestored is Start for the first chain after a restore. It is refused, as
// Verification, if the record does not stand where the backup says.
func (a *Audit) StartRestored(ctx context.Context, r Restored) error { return a.start(ctx, &r) }

func (r *Restored) check(ctx context.Context, q db.Q) error {
	now, err := MarksIn(ctx, q)
	if err != nil {
		return err
	}
	if !now.equal(r.Marks) {
		return fault.New(fault.Verification, "the audit record is not the one of backup %s: it stands elsewhere", r.Backup)
	}
	return nil
}

// fits holds what an opening says of the record before it against that.
func (r *Restored) fits(chain string, chains int64, recent []ends) error {
	said := Marks{Chains: chains}
	for _, e := range recent {
		said.Heads = append(said.Heads, Mark{Chain: e.chain, Seq: e.last.seq, Hash: hex.EncodeToString(e.last.hash)})
	}
	if !said.equal(r.Marks) {
		return bad(chain, 0, "it says that the store was restored with another record than the one before it")
	}
	return nil
}

// restorePoint is an opening that says so.
type restorePoint struct {
	opening opening
	hash    []byte
	sig     []byte
}

// restoresOf returns those of a store. Each has its signature checked: it is the
// proof that a restore was made by who has the key.
func restoresOf(ctx context.Context, d reader, keys vault.Keys) (points []restorePoint, err error) {
	err = d.Read(ctx, func(ctx context.Context, q db.Q) error {
		type row struct {
			text              string
			before, hash, sig []byte
		}
		rows, err := db.All(ctx, q, func(r *db.Rows) (x row, err error) {
			err = r.Scan(&x.text, &x.hash, &x.sig, &x.before)
			return x, err
		}, `SELECT c.opening, c.hash, c.signature, p.hash FROM audit_chains c LEFT JOIN audit_chains p ON p.number = c.number - 1
			WHERE c.opening LIKE '%"restored":%' ORDER BY c.number`)
		points = nil
		for _, x := range rows {
			p := restorePoint{hash: x.hash, sig: x.sig}
			if err := strict(x.text, &p.opening); err != nil {
				return bad("", 0, "its opening cannot be read: %v", err)
			}
			if p.opening.Restored == nil {
				continue // its node is called so
			}
			before := link{hash: x.before}
			if x.before == nil {
				before = genesis()
			}
			follows := before.next(x.text, nil).hash
			if !bytes.Equal(follows, x.hash) || keys.Verify(openingMessage(x.hash), x.sig) != nil {
				return bad(p.opening.Chain, 0, "it says that the store was restored and is not signed by key %s", keys.Fingerprint())
			}
			points = append(points, p)
		}
		return err
	})
	return points, err
}

// leftBehind reports whether the place of line i, which is not in the record, is one
// that a restore gave up: it was anchored before the restore was, and it is behind
// the end of the backup. known is whether the record has its chain.
func (a *Anchors) leftBehind(i int, known bool, points []restorePoint) bool {
	for _, p := range points {
		at := slices.IndexFunc(a.lines, func(l anchorLine) bool { return l.Chain == p.opening.Chain && l.Seq == 0 })
		if at >= 0 && at < i {
			continue
		}
		if !known {
			return true
		}
		if slices.ContainsFunc(p.opening.Restored.Marks.Heads, func(m Mark) bool { return m.Chain == a.lines[i].Chain && a.lines[i].Seq > m.Seq }) {
			return true
		}
	}
	return false
}

// writeRestores anchors the restores that the file does not know, so that what is
// anchored from then on has to be there.
func (f *Anchor) writeRestores(ctx context.Context, file *os.File, known *Anchors) error {
	points, err := restoresOf(ctx, f.db, f.keys)
	if err != nil {
		return err
	}
	have := known.byPlace()
	for _, p := range points {
		if _, there := have[chainSeq{p.opening.Chain, 0}]; there {
			continue
		}
		text, err := canonical(anchorLine{
			Format: anchorFormat, Node: p.opening.Node, Epoch: p.opening.Epoch, Chain: p.opening.Chain,
			Hash: hex.EncodeToString(p.hash), Signature: hex.EncodeToString(p.sig),
		})
		if err != nil {
			return err
		}
		if _, err := file.WriteString(text + "\n"); err != nil {
			return fault.New(fault.Unavailable, "%w", err)
		}
		if err := file.Sync(); err != nil {
			return fault.New(fault.Unavailable, "%w", err)
		}
	}
	return nil
}
