package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func newVault(t testing.TB) *vault.Vault {
	t.Helper()
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// pattern is content whose every piece differs.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>16 ^ i>>8 ^ i*7)
	}
	return b
}

func get(t testing.TB, s *Store, id string) []byte {
	t.Helper()
	r, err := s.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 1)); !fault.Is(err, fault.Invalid) {
		t.Errorf("read after close: %v", err)
	}
	return b
}

func count(t testing.TB, d *db.DB, table string) (n int64) {
	t.Helper()
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestContentOfAnySizeComesBackOnceStored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := New(d, newVault(t))
		seen := map[string]int{}
		rapid.Check(t, func(rt *rapid.T) {
			size := rapid.OneOf(rapid.IntRange(0, 40),
				rapid.SampledFrom([]int{PieceSize - 1, PieceSize, PieceSize + 1, 2 * PieceSize, 3*PieceSize + 5})).Draw(rt, "size")
			limit := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 2*PieceSize+1),
				rapid.SampledFrom([]int{PieceSize, 2 * PieceSize, size + 1, max(size, 1)})).Draw(rt, "max")
			r := io.Reader(bytes.NewReader(pattern(size)))
			if rapid.Bool().Draw(rt, "slow") {
				r = iotest.HalfReader(r)
			}
			ref, err := s.Put(t.Context(), r, int64(limit))
			if err != nil {
				rt.Fatal(err)
			}
			want := size
			if limit > 0 {
				want = min(size, limit)
			}
			if ref.Size != int64(want) || ref.Cut != (want < size) {
				rt.Fatalf("size %d, limit %d: %+v", size, limit, ref)
			}
			if got := get(t, s, ref.ID); !bytes.Equal(got, pattern(want)) {
				rt.Fatalf("%d bytes came back as %d others", want, len(got))
			}
			if st, err := s.Stat(t.Context(), ref.ID); st != ref || err != nil {
				rt.Fatalf("stat %+v, %v; put said %+v", st, err, ref)
			}
			seen[ref.ID] = (want + PieceSize - 1) / PieceSize
		})
		pieces := 0
		for _, n := range seen {
			pieces += n
		}
		if n, p := count(t, d, "blobs"), count(t, d, "blob_pieces"); n != int64(len(seen)) || p != int64(pieces) {
			t.Errorf("%d blobs and %d pieces for %d and %d", n, p, len(seen), pieces)
		}
	})
}

func TestSameContentAtTheSameTimeIsKeptOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := New(d, newVault(t))
		var ids sync.Map
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				ref, err := s.Put(t.Context(), bytes.NewReader(pattern(2*PieceSize+9)), 0)
				if err != nil {
					t.Error(err)
				}
				ids.Store(ref.ID, true)
			})
		}
		wg.Wait()
		n := 0
		ids.Range(func(_, _ any) bool { n++; return true })
		if b, p := count(t, d, "blobs"), count(t, d, "blob_pieces"); n != 1 || b != 1 || p != 3 {
			t.Errorf("%d ids, %d blobs, %d pieces", n, b, p)
		}
	})
}

// endless is a producer of more than anybody wants.
type endless struct{ given int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.given += int64(len(p))
	return len(p), nil
}

func TestEndlessProducerIsCutAtTheLimit(t *testing.T) {
	t.Parallel()
	s := New(dbtest.SQLite(t), newVault(t))
	var e endless
	ref, err := s.Put(t.Context(), &e, 1<<40)
	if err != nil || !ref.Cut || ref.Size != MaxSize || e.given != MaxSize+1 {
		t.Errorf("%+v after %d bytes, %v", ref, e.given, err)
	}
}

func TestFailedPutLeavesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := New(d, newVault(t))
		boom := errors.New("boom")
		_, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(pattern(2*PieceSize+1)), iotest.ErrReader(boom)), 0)
		if !errors.Is(err, boom) {
			t.Errorf("reader's error: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopping := readFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
		if _, err := s.Put(ctx, io.MultiReader(bytes.NewReader(pattern(2*PieceSize)), stopping), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if b, p := count(t, d, "blobs"), count(t, d, "blob_pieces"); b != 0 || p != 0 {
			t.Errorf("%d blobs, %d pieces", b, p)
		}
		if _, err := s.Open(t.Context(), "blob_x"); !fault.Is(err, fault.NotFound) {
			t.Errorf("unknown: %v", err)
		}
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestSweepRemovesOnlyWhatIsHalfWrittenAndOld(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			var us atomic.Int64
			o := dbtest.Options(t, kind)
			o.Now = func() time.Time { return time.UnixMicro(us.Load()) }
			d := dbtest.Open(t, o)
			s := New(d, newVault(t))
			whole, err := s.Put(t.Context(), bytes.NewReader(pattern(PieceSize+1)), 0)
			if err != nil {
				t.Fatal(err)
			}
			for range 9 {
				killed := &filler{s: s, ref: Ref{ID: whole.ID + strings.Repeat("x", int(us.Add(1)))}}
				if err := killed.add(t.Context(), pattern(10)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Open(t.Context(), killed.ref.ID); !fault.Is(err, fault.NotFound) {
					t.Errorf("half a blob can be opened: %v", err)
				}
			}
			us.Store(fillTime.Microseconds())
			if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
				t.Errorf("too early: %d, %v", n, err)
			}
			slow := &filler{s: s, ref: Ref{ID: "blob_slow"}, digest: s.vault.Digest(digestDomain)}
			if err := slow.add(t.Context(), pattern(10)); err != nil {
				t.Fatal(err)
			}
			us.Add(2 * fillTime.Microseconds())
			if n, err := s.Sweep(t.Context()); n != 10 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
			if err := slow.add(t.Context(), pattern(10)); !fault.Is(err, fault.Timeout) {
				t.Errorf("a swept blob goes on filling: %v", err)
			}
			if p := count(t, d, "blob_pieces"); p != 2 || len(get(t, s, whole.ID)) != PieceSize+1 {
				t.Errorf("%d pieces left", p)
			}
		})
	}
}

func TestChangedContentIsNoticed(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		`DELETE FROM blob_pieces WHERE n = 1`,
		`UPDATE blob_pieces SET data = (SELECT data FROM blob_pieces WHERE n = 0) WHERE n = 1`,
		`UPDATE blob_pieces SET data = x'01' WHERE n = 2`,
		`UPDATE blobs SET pieces = 2`,
		`UPDATE blobs SET pieces = 4`,
		`UPDATE blobs SET cut = 1`,
		`UPDATE blobs SET size = size - 1`,
		`UPDATE blobs SET digest = x'00'`,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			d := dbtest.SQLite(t)
			s := New(d, newVault(t))
			ref, err := s.Put(t.Context(), bytes.NewReader(pattern(2*PieceSize+9)), 0)
			if err != nil {
				t.Fatal(err)
			}
			err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, change)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Open(t.Context(), ref.ID)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); !fault.Is(err, fault.Verification) {
				t.Errorf("read: %v", err)
			}
		})
	}
}
