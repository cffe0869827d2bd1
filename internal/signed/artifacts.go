package signed

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

const (
	// pieceSize is how much of an artifact one row holds.
	pieceSize = 1 << 20
	// keepFor is how long an artifact that nothing refers to is kept, from when it was
	// written.
	keepFor = 24 * time.Hour
)

// Sum names a file: its sha256 in lower-case hex.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func pieceRow(sha string, n int) string { return sha + "/" + strconv.Itoa(n) }

// keep writes the pieces of an artifact, a transaction each. Nothing refers to them before
// wholeTx.
func (l *Library) keep(ctx context.Context, name, sha string, data []byte) error {
	for n, piece := range slices.Collect(slices.Chunk(data, pieceSize)) {
		sealed := l.d.Vault.Seal(vault.SignedPiece, pieceRow(sha, n), piece)
		err := l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return keepTx(ctx, tx, name, sha, len(data), n, sealed) })
		if err != nil {
			return err
		}
	}
	return nil
}

func keepTx(ctx context.Context, tx *db.Tx, name, sha string, size, n int, sealed []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO signed_artifacts (sha, name, size, pieces, at) VALUES ($1, $2, $3, 0, $4)
		ON CONFLICT (sha) DO UPDATE SET at = excluded.at`, sha, name, size, tx.Now())
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO signed_pieces (sha, n, data) VALUES ($1, $2, $3)
		ON CONFLICT (sha, n) DO UPDATE SET data = excluded.data`, sha, n, sealed)
	return err
}

// wholeTx says that all of an artifact is there. Conflict if what was written is not.
func (l *Library) wholeTx(ctx context.Context, tx *db.Tx, sha string, size int) error {
	pieces := (size + pieceSize - 1) / pieceSize
	have := 0
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM signed_pieces WHERE sha = $1", sha).Scan(&have); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "UPDATE signed_artifacts SET pieces = $2, at = $3 WHERE sha = $1", sha, pieces, tx.Now())
	if err == nil && (n == 0 || have != pieces) {
		err = fault.New(fault.Conflict, "%d of %d pieces of the artifact are there", have, pieces).WithHint("install it again")
	}
	return err
}

// Has reports whether an artifact is there, as a transaction or snapshot sees it.
func (l *Library) Has(ctx context.Context, q db.Q, sha string) (bool, error) {
	n := 0
	err := q.QueryRow(ctx, "SELECT count(*) FROM signed_artifacts WHERE sha = $1 AND pieces > 0", sha).Scan(&n)
	return n > 0, err
}

// Artifact reads an artifact back and verifies it again, by the trust of today: what is in
// the store must be, byte for byte, the file of that sha256, its signatures must hold, and
// none of its keys may be revoked. Errors: NotFound if it is not kept, Verification.
func (l *Library) Artifact(ctx context.Context, sha string) (*wasmloop.Artifact, error) {
	data, err := l.file(ctx, sha)
	if err != nil {
		return nil, err
	}
	trust, err := l.Trust(ctx)
	if err != nil {
		return nil, err
	}
	trust.AllowUntrusted = true // the tier it has was accepted when it was installed
	a, _, err := wasmloop.VerifyBytes(data, trust)
	if err != nil {
		return nil, refusal(err)
	}
	l.keys.Store(sha, keysOf(a))
	return a, nil
}

// file is the artifact of a sha256.
func (l *Library) file(ctx context.Context, sha string) ([]byte, error) {
	size, pieces := 0, 0
	err := l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT size, pieces FROM signed_artifacts WHERE sha = $1 AND pieces > 0", sha).Scan(&size, &pieces)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "no artifact with the sha256 %s is kept", sha)
	}
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, max(0, min(size, MaxArtifact)))
	for n := range pieces { // a short read each
		var sealed []byte
		err := l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, "SELECT data FROM signed_pieces WHERE sha = $1 AND n = $2", sha, n).Scan(&sealed)
		})
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fault.New(fault.Verification, "signed_pieces %s: there is no piece %d", sha, n)
		}
		if err != nil {
			return nil, err
		}
		piece, err := l.d.Vault.Open(vault.SignedPiece, pieceRow(sha, n), sealed)
		if err != nil {
			return nil, err
		}
		data = append(data, piece...)
	}
	if got := Sum(data); got != sha {
		return nil, fault.New(fault.Verification, "the artifact kept as %s has the sha256 %s", sha, got)
	}
	return data, nil
}

// Forget removes old artifacts that no loop has and no run can ask for: those of runs that
// have not ended, and of failed ones that can still be replayed, stay.
func (l *Library) Forget(ctx context.Context) error {
	return l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM signed_artifacts WHERE at < $1 AND sha NOT IN (SELECT sha FROM signed_loops)
			AND '`+prefix+`' || name || '@sha256:' || sha NOT IN (SELECT definition FROM runs WHERE kind IN ($2, $3)
				AND (state NOT IN ($4, $5, $6) OR id IN (SELECT ref FROM dead_letters WHERE source = 'run')))`,
			tx.Now()-keepFor.Microseconds(), Kind, ToolKind, string(run.Completed), string(run.Failed), string(run.Cancelled))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM signed_pieces WHERE sha NOT IN (SELECT sha FROM signed_artifacts)")
		return err
	})
}
