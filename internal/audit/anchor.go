package audit

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// anchorFormat is the word by which each line of an anchor file says what it is.
const anchorFormat = "ombud.audit.anchor.v1"

// checkpointTopic is notified when a chain was signed.
const checkpointTopic = "audit.checkpoint"

// anchorPoll is how long a checkpoint waits for its line if the notice of it is lost.
const anchorPoll = 5 * time.Second

// anchorPage is how many lines are written with one flush to disk.
const anchorPage = 256

// anchorLine is a place in the record as it is kept outside of the store: the
// opening of a chain (seq 0) or a checkpoint, with the signature it has there.
type anchorLine struct {
	Format    string `json:"anchor"`
	Node      string `json:"node"`
	Epoch     int64  `json:"epoch"`
	Chain     string `json:"chain"`
	Seq       int64  `json:"seq"`
	Hash      string `json:"hash"`
	Signature string `json:"signature"`
}

func (l anchorLine) mark() mark { return mark{l.Epoch, l.Seq} }

// mark orders the anchors of one node.
type mark struct{ epoch, seq int64 }

// anchorsAfter reads the anchors of a node behind a place, or only the last one.
func anchorsAfter(ctx context.Context, q db.Q, node string, after mark, last bool) ([]anchorLine, error) {
	order, limit := "ASC", int64(anchorPage)
	if last {
		order, limit = "DESC", 1
	}
	return db.All(ctx, q, func(r *db.Rows) (anchorLine, error) {
		l := anchorLine{Format: anchorFormat, Node: node}
		var hash, sig []byte
		err := r.Scan(&l.Epoch, &l.Chain, &l.Seq, &hash, &sig)
		l.Hash, l.Signature = hex.EncodeToString(hash), hex.EncodeToString(sig)
		return l, err
	}, `SELECT epoch, chain, seq, hash, signature FROM (
			SELECT epoch, chain, 0 AS seq, hash, signature FROM audit_chains WHERE node = $1 AND epoch >= $2
			UNION ALL
			SELECT c.epoch, k.chain, k.seq, k.hash, k.signature FROM audit_checkpoints k JOIN audit_chains c ON c.chain = k.chain
			WHERE c.node = $1 AND c.epoch >= $2
		) AS anchors WHERE epoch > $2 OR seq > $3 ORDER BY epoch `+order+`, seq `+order+` LIMIT $4`, node, after.epoch, after.seq, limit)
}

// Anchors are places of the record that were kept outside of the store.
type Anchors struct {
	lines []anchorLine // as in the file
	keys  vault.Keys
}

// Len returns how many there are.
func (a *Anchors) Len() int { return len(a.lines) }

type chainSeq struct {
	chain string
	seq   int64
}

// byPlace returns the lines by what they name; of several that name the same, the
// last one.
func (a *Anchors) byPlace() map[chainSeq]int {
	out := make(map[chainSeq]int, len(a.lines))
	for i, l := range a.lines {
		out[chainSeq{l.Chain, l.Seq}] = i
	}
	return out
}

// ReadAnchors reads an anchor file. Every line must be an anchor signed with the
// key, else the error is of class Verification and names the line: who could spoil
// a line could hide what it said. Only an end without its line break is left out,
// which is how a power cut leaves a file.
func ReadAnchors(r io.Reader, keys vault.Keys) (*Anchors, error) {
	a := &Anchors{keys: keys}
	in := bufio.NewReader(io.LimitReader(r, 1<<30))
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, fault.New(fault.Unavailable, "read the anchors: %w", err)
		}
		l, err := parseAnchor(bytes.TrimSuffix(text, []byte("\n")), keys)
		if err != nil {
			return nil, fault.New(fault.Verification, "line %d of the anchors: %w", n, err).
				WithHint("nothing is proved by a spoiled anchor file; use a copy of it")
		}
		a.lines = append(a.lines, l)
	}
}

func parseAnchor(text []byte, keys vault.Keys) (l anchorLine, err error) {
	if len(text) > maxLine {
		return l, errors.New("it is too long")
	}
	if err := strict(string(text), &l); err != nil {
		return l, err
	}
	var d decoder
	hash, sig := d.hex(l.Hash), d.hex(l.Signature)
	switch {
	case d.err != nil:
		return l, d.err
	case l.Format != anchorFormat:
		return l, fmt.Errorf("it is %q, not %q", l.Format, anchorFormat)
	case l.Seq < 0 || l.Epoch < 1:
		return l, errors.New("it names no place")
	case l.Seq == 0:
		return l, keys.Verify(openingMessage(hash), sig)
	}
	return l, keys.Verify(checkpointMessage(l.Chain, l.Seq, hash), sig)
}

// ReadAnchorFile reads the anchors in a file, which has to be there.
func ReadAnchorFile(path string, keys vault.Keys) (*Anchors, error) {
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.Verification, "the anchor file %s is not there", path).
			WithHint("if it was only just configured, start the daemon: it makes the file")
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.New(fault.Permission, "anchor file: %w", err)
	case err != nil:
		return nil, fault.New(fault.Unavailable, "anchor file: %w", err)
	}
	defer file.Close()
	a, err := ReadAnchors(file, keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// AnchorReport says what a comparison with anchors came to.
type AnchorReport struct {
	Found   int64
	GivenUp int64 // of a time that a restore, which is on record, has left behind

	behind map[int]bool // those, by their lines
}

// VerifyAnchors holds a verified record against anchors from outside of it. It finds
// what nothing inside a store can show: that the whole of it was put back to an older
// state, or that its end was cut off with everything that refers to it.
//
// A store that was put back by a restore says so in the opening of a chain, which
// only the holder of the key can make. What came after the backup is then missing
// rightly: such anchors are counted and are no error. That holds for anchors that
// were written before the one of that opening, and for nothing later.
func VerifyAnchors(ctx context.Context, d reader, a *Anchors) (rep AnchorReport, err error) {
	var missing []int
	chains := map[string]bool{}
	for start := 0; start < len(a.lines); start += page {
		err := d.Read(ctx, func(ctx context.Context, q db.Q) error {
			for i, l := range a.lines[start:min(start+page, len(a.lines))] {
				hash, err := l.look(ctx, q)
				if err != nil {
					return err
				}
				if hash == nil {
					missing = append(missing, start+i)
					if chains[l.Chain], err = hasChain(ctx, q, l.Chain); err != nil {
						return err
					}
					continue
				}
				if err := l.compare(hash); err != nil {
					return err
				}
				rep.Found++
			}
			return nil
		})
		if err != nil {
			return rep, err
		}
	}
	if len(missing) == 0 {
		return rep, nil
	}
	points, err := restoresOf(ctx, d, a.keys)
	if err != nil {
		return rep, err
	}
	for _, i := range missing {
		if !a.leftBehind(i, chains[a.lines[i].Chain], points) {
			return rep, a.lines[i].compare(nil)
		}
		rep.GivenUp++
		if rep.behind == nil {
			rep.behind = map[int]bool{}
		}
		rep.behind[i] = true
	}
	return rep, nil
}

// look returns the hash the store has at the anchor's place, nil if it has none.
func (l anchorLine) look(ctx context.Context, q db.Q) (hash []byte, err error) {
	query, args := `SELECT hash FROM audit WHERE chain = $1 AND seq = $2`, []any{l.Chain, l.Seq}
	if l.Seq == 0 {
		query, args = `SELECT hash FROM audit_chains WHERE chain = $1`, args[:1]
	}
	if err = q.QueryRow(ctx, query, args...).Scan(&hash); errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return hash, err
}

func hasChain(ctx context.Context, q db.Q, chain string) (bool, error) {
	var n int64
	err := q.QueryRow(ctx, `SELECT count(*) FROM audit_chains WHERE chain = $1`, chain).Scan(&n)
	return n > 0, err
}

// compare holds the hash of the record against the anchor; nil says there is none.
func (l anchorLine) compare(hash []byte) error {
	switch {
	case hash == nil:
		return bad(l.Chain, l.Seq, "it is missing: an anchor names it, so the record was put back to an older state or cut")
	case hex.EncodeToString(hash) != l.Hash:
		return bad(l.Chain, l.Seq, "it has another hash than an anchor says")
	}
	return nil
}

// Anchor writes the anchors of one node to a file outside of the store, a line for
// every chain opened and every checkpoint, each line flushed to disk. The store is
// what it reads them from, so that none is left out if the process is killed
// between a commit and its line.
type Anchor struct {
	path string
	node string
	db   *db.DB
	keys vault.Keys
	log  *slog.Logger

	mu     sync.Mutex
	file   *os.File
	at     mark // of the last line
	quit   context.CancelFunc
	done   chan struct{}
	failed error // of the last pass
}

// Anchor returns what writes this node's anchors to the file at path.
func (a *Audit) Anchor(path string) *Anchor {
	return &Anchor{path: path, node: a.node, db: a.db, keys: a.vault.Keys(), log: a.log}
}

// Start opens the file, makes it if there is none, and brings it up to the store.
// It refuses to go on, with class Verification, if the file is spoiled or names a
// place the store does not have: then the store is older than the file. Start it
// before the audit, which adds a chain to the store.
func (f *Anchor) Start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		return nil
	}
	if err := f.open(ctx); err != nil {
		return fmt.Errorf("anchor file %s: %w", f.path, err)
	}
	if err := f.write(ctx); err != nil {
		_ = f.file.Close()
		f.file = nil
		return fmt.Errorf("anchor file %s: %w", f.path, err)
	}
	loop, quit := context.WithCancel(context.WithoutCancel(ctx))
	f.quit, f.done = quit, make(chan struct{})
	go f.follow(loop)
	return nil
}

func (f *Anchor) open(ctx context.Context) error {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		class := fault.Unavailable
		if errors.Is(err, fs.ErrPermission) {
			class = fault.Permission
		}
		return fault.New(class, "%w", err)
	}
	if err := f.resume(ctx, file); err != nil {
		_ = file.Close() // nothing was written
		return err
	}
	f.file = file
	return nil
}

// resume takes up where the file ends.
func (f *Anchor) resume(ctx context.Context, file *os.File) error {
	known, err := ReadAnchors(file, f.keys)
	if err != nil {
		return err
	}
	if err := cutTorn(file); err != nil {
		return err
	}
	rep, err := VerifyAnchors(ctx, f.db, known)
	if err != nil {
		return fault.New(fault.Verification, "%w", err).
			WithHint("an older state comes back by ombud restore; if it was copied by hand on purpose, put the anchor file away and start again")
	}
	if rep.GivenUp > 0 {
		f.log.Warn("the store was restored from a backup: what was anchored after the backup is not in it", "anchors", rep.GivenUp)
	}
	if err := f.writeRestores(ctx, file, known); err != nil {
		return err
	}
	f.at = mark{0, -1}
	for i, l := range known.lines {
		if rep.behind[i] {
			continue // the node may come to that place again
		}
		if p := l.mark(); l.Node == f.node && (p.epoch > f.at.epoch || p.epoch == f.at.epoch && p.seq > f.at.seq) {
			f.at = p
		}
	}
	return nil
}

// cutTorn removes a last line that a power cut left without its end.
func cutTorn(file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return err
	}
	tail := make([]byte, min(size, maxLine))
	if _, err := file.ReadAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	keep := size - int64(len(tail)) + int64(bytes.LastIndexByte(tail, '\n')+1)
	if keep == size {
		return nil
	}
	return file.Truncate(keep)
}

// write appends what the file lacks.
func (f *Anchor) write(ctx context.Context) error {
	for {
		var lines []anchorLine
		err := f.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			lines, err = anchorsAfter(ctx, q, f.node, f.at, false)
			return err
		})
		if err != nil || len(lines) == 0 {
			return err
		}
		var b bytes.Buffer
		for _, l := range lines {
			text, err := canonical(l)
			if err != nil {
				return err
			}
			b.WriteString(text + "\n")
		}
		if err := f.flush(b.Bytes()); err != nil {
			return fault.New(fault.Unavailable, "%w", err)
		}
		f.at = lines[len(lines)-1].mark()
	}
}

// flush writes whole lines or, if that fails, none.
func (f *Anchor) flush(lines []byte) error {
	size, err := f.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := f.file.Write(lines); err != nil {
		return errors.Join(err, f.file.Truncate(size))
	}
	return f.file.Sync()
}

// follow writes on until ctx ends.
func (f *Anchor) follow(ctx context.Context) {
	defer close(f.done)
	woken, stop := f.db.Watch(checkpointTopic)
	defer stop()
	tick := time.NewTicker(anchorPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-tick.C:
		}
		if err := f.Flush(ctx); err != nil && ctx.Err() == nil {
			f.log.Error("the audit is not anchored", "path", f.path, "error", err)
		}
	}
}

// Flush writes the anchors that the file lacks now.
func (f *Anchor) Flush(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return fault.New(fault.Unavailable, "the anchor file is not open")
	}
	f.failed = f.write(ctx)
	return f.failed
}

// Err returns what kept the last pass from writing, nil if nothing did.
func (f *Anchor) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Stop writes what is left and closes the file. Stop it after the audit, whose last
// checkpoint is among that. Calling it again does nothing.
func (f *Anchor) Stop(ctx context.Context) error {
	f.mu.Lock()
	if f.file == nil {
		f.mu.Unlock()
		return nil
	}
	quit, done := f.quit, f.done
	f.mu.Unlock()
	quit()
	<-done
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := errors.Join(f.write(ctx), f.file.Close())
	f.file = nil
	if err != nil {
		return fmt.Errorf("anchor file %s: %w", f.path, err)
	}
	return nil
}
