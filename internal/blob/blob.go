package blob

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

const (
	// PieceSize is how much of a blob one row holds.
	PieceSize = 256 << 10
	// MaxSize is the most a blob can hold.
	MaxSize = 64 << 20
	// fillTime is how long a Put may take before Sweep takes it for dead.
	fillTime = 24 * time.Hour
)

// digestDomain names the key of digests. Changing it would store all content twice.
const digestDomain = "blob"

// Ref names stored content.
type Ref struct {
	ID   string
	Size int64
	Cut  bool // there was more than fitted
}

// Store keeps blobs. It is safe for concurrent use.
type Store struct {
	db    *db.DB
	vault *vault.Vault
}

// New returns the blobs of d.
func New(d *db.DB, v *vault.Vault) *Store { return &Store{db: d, vault: v} }

// Put stores what r gives, at most limit bytes (0 or more than MaxSize: MaxSize).
// If there is more, Ref.Cut is set and r is not read any further; stopping its
// producer is up to the caller. Content that is already stored, cut at the same
// place or not at all, is not stored again. An error of r is returned and nothing
// is kept. While r gives nothing Put waits, whatever ctx says, and holds no
// transaction.
func (s *Store) Put(ctx context.Context, r io.Reader, limit int64) (_ Ref, err error) {
	if limit <= 0 || limit > MaxSize {
		limit = MaxSize
	}
	w := &filler{s: s, ref: Ref{ID: id.New("blob")}, digest: s.vault.Digest(digestDomain)}
	defer func() {
		if err != nil && w.begun {
			err = errors.Join(err, w.discard(context.WithoutCancel(ctx)))
		}
	}()
	last, err := w.fill(ctx, r, limit)
	if err != nil {
		return Ref{}, fmt.Errorf("store a blob: %w", err)
	}
	return w.finish(ctx, last)
}

// filler is a blob being written.
type filler struct {
	s      *Store
	ref    Ref
	digest hash.Hash
	pieces int64
	begun  bool // there are rows of it
}

// fill writes all pieces but the last, which it returns, so that content of one
// piece costs one transaction.
func (w *filler) fill(ctx context.Context, r io.Reader, limit int64) (last []byte, err error) {
	var piece []byte
	for {
		size := min(PieceSize, limit-w.ref.Size)
		if size == 0 {
			w.ref.Cut, err = hasMore(r)
			return piece, err
		}
		if piece != nil {
			if err := w.add(ctx, piece); err != nil {
				return nil, err
			}
		}
		next := make([]byte, size)
		n, err := io.ReadFull(r, next)
		if n > 0 {
			piece = next[:n]
			w.ref.Size += int64(n)
			w.digest.Write(piece)
		} else {
			piece = nil
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return piece, nil
		case err != nil:
			return nil, err
		}
	}
}

// hasMore reads one byte to know whether content was cut.
func hasMore(r io.Reader) (bool, error) {
	_, err := io.ReadFull(r, make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

func (w *filler) add(ctx context.Context, piece []byte) error {
	sealed := w.s.vault.Seal(vault.BlobPiece, pieceRow(w.ref.ID, w.pieces), piece)
	err := w.s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := w.begin(ctx, tx); err != nil {
			return err
		}
		return w.insert(ctx, tx, sealed)
	})
	if err != nil {
		return err
	}
	w.begun = true
	w.pieces++
	return nil
}

// begin makes the row of the blob at its first piece. Later ones must find it:
// a Put that took too long was swept away.
func (w *filler) begin(ctx context.Context, tx *db.Tx) error {
	if !w.begun {
		_, err := tx.Exec(ctx, `INSERT INTO blobs (id, digest, size, pieces, cut, at) VALUES ($1, NULL, 0, 0, 0, $2)`, w.ref.ID, tx.Now())
		return err
	}
	var n int64
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM blobs WHERE id = $1`, w.ref.ID).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.Timeout, "the blob took longer than %s to fill", fillTime)
	}
	return nil
}

func (w *filler) insert(ctx context.Context, tx *db.Tx, sealed []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO blob_pieces (blob, n, data) VALUES ($1, $2, $3)`, w.ref.ID, w.pieces, sealed)
	return err
}

// finish writes the last piece and the digest, or drops everything if the same
// content is there already.
func (w *filler) finish(ctx context.Context, last []byte) (Ref, error) {
	w.digest.Write([]byte{byte(flag(w.ref.Cut))})
	digest := w.digest.Sum(nil)
	var sealed []byte
	pieces := w.pieces
	if len(last) > 0 {
		sealed = w.s.vault.Seal(vault.BlobPiece, pieceRow(w.ref.ID, w.pieces), last)
		pieces++
	}
	out := w.ref
	err := w.s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out = w.ref
		err := tx.QueryRow(ctx, `SELECT id FROM blobs WHERE digest = $1`, digest).Scan(&out.ID)
		if err == nil {
			return w.s.remove(ctx, tx, w.ref.ID)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := w.begin(ctx, tx); err != nil {
			return err
		}
		if sealed != nil {
			if err := w.insert(ctx, tx, sealed); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE blobs SET digest = $2, size = $3, pieces = $4, cut = $5 WHERE id = $1`,
			w.ref.ID, digest, w.ref.Size, pieces, flag(w.ref.Cut))
		return err
	})
	if err != nil {
		return Ref{}, fmt.Errorf("store a blob: %w", err)
	}
	return out, nil
}

func (w *filler) discard(ctx context.Context) error {
	return w.s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return w.s.remove(ctx, tx, w.ref.ID) })
}

// remove takes out a blob that is not complete.
func (s *Store) remove(ctx context.Context, tx *db.Tx, blob string) error {
	n, err := tx.Exec(ctx, `DELETE FROM blobs WHERE id = $1 AND digest IS NULL`, blob)
	if err != nil || n == 0 {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM blob_pieces WHERE blob = $1`, blob)
	return err
}

// Sweep removes what killed processes left half written and returns how many.
func (s *Store) Sweep(ctx context.Context) (removed int64, err error) {
	for {
		var n int64
		err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			ids, err := db.All(ctx, tx, db.Column[string], `SELECT id FROM blobs WHERE digest IS NULL AND at < $1 LIMIT 4`,
				tx.Now()-fillTime.Microseconds())
			n = int64(len(ids))
			for _, blob := range ids {
				if err == nil {
					err = s.remove(ctx, tx, blob)
				}
			}
			return err
		})
		if err != nil || n == 0 {
			return removed, err
		}
		removed += n
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func pieceRow(blob string, n int64) string { return blob + "/" + strconv.FormatInt(n, 10) }

// Stat returns what is known of a blob, or NotFound.
func (s *Store) Stat(ctx context.Context, blob string) (Ref, error) {
	r, err := s.open(ctx, blob)
	return r.ref, err
}

// Open returns a reader of the content, or NotFound. Each piece is read when it
// is needed, by a short read of its own; ctx bounds them all. Content that is not
// what was stored ends in an error of class Verification, possibly after parts of
// it were returned.
func (s *Store) Open(ctx context.Context, blob string) (io.ReadCloser, error) {
	r, err := s.open(ctx, blob)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Store) open(ctx context.Context, blob string) (*reader, error) {
	r := &reader{s: s, ctx: ctx, ref: Ref{ID: blob}, running: s.vault.Digest(digestDomain)}
	var cut int64
	err := s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, `SELECT digest, size, pieces, cut FROM blobs WHERE id = $1 AND digest IS NOT NULL`, blob).
			Scan(&r.digest, &r.ref.Size, &r.pieces, &cut)
	})
	r.ref.Cut = cut != 0
	if errors.Is(err, sql.ErrNoRows) {
		return r, fault.New(fault.NotFound, "no blob %s", blob)
	}
	return r, err
}

// reader reads a blob piece by piece. It is not for concurrent use.
type reader struct {
	s       *Store
	ctx     context.Context
	ref     Ref
	digest  []byte
	pieces  int64
	next    int64
	left    []byte
	read    int64
	running hash.Hash
	err     error // sticks
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.left) == 0 && r.err == nil {
		r.err = r.load()
	}
	if len(r.left) == 0 {
		return 0, r.err
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// load gets the next piece; after the last it holds the whole against the digest.
func (r *reader) load() error {
	if r.next == r.pieces {
		r.running.Write([]byte{byte(flag(r.ref.Cut))})
		if r.read != r.ref.Size || !bytes.Equal(r.running.Sum(nil), r.digest) {
			return fault.New(fault.Verification, "blob %s is not what was stored", r.ref.ID)
		}
		return io.EOF
	}
	var sealed []byte
	err := r.s.db.Read(r.ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, `SELECT data FROM blob_pieces WHERE blob = $1 AND n = $2`, r.ref.ID, r.next).Scan(&sealed)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.Verification, "blob %s has no piece %d", r.ref.ID, r.next)
	}
	if err != nil {
		return err
	}
	if r.left, err = r.s.vault.Open(vault.BlobPiece, pieceRow(r.ref.ID, r.next), sealed); err != nil {
		return err
	}
	r.running.Write(r.left)
	r.read += int64(len(r.left))
	r.next++
	return nil
}

// Close lets go of the content.
func (r *reader) Close() error {
	r.left, r.err = nil, fault.New(fault.Invalid, "read of a closed blob")
	return nil
}
