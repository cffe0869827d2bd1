package signed

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/wasmloop"
)

func (s *shelf) exec(sql string, args ...any) {
	s.t.Helper()
	err := s.db.InTx(s.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestWhatIsSwappedInTheStoreIsNotRun(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		x := s.install(hello(t, "1.0.0", nil))
		other := s.install(signedtest.V2(t, wasmloop.Manifest{Name: "other"}, signedtest.Module("o"), "maker", ""))
		sealed := func(sha string) (data []byte) {
			err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "SELECT data FROM signed_pieces WHERE sha = $1", sha).Scan(&data)
			})
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		good := sealed(x.SHA256)
		bit := append([]byte(nil), good...)
		bit[len(bit)/2] ^= 1
		for what, piece := range map[string][]byte{"a bit": bit, "another artifact's piece": sealed(other.SHA256)} {
			s.exec("UPDATE signed_pieces SET data = $1 WHERE sha = $2", piece, x.SHA256)
			if _, err := s.Artifact(t.Context(), x.SHA256); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "signed_pieces") {
				t.Errorf("%s: %v", what, err)
			}
			if v, err := s.Verify(t.Context(), "hello"); err != nil || !fault.Is(v[0].Problem, fault.Verification) {
				t.Errorf("%s: %+v %v", what, v, err)
			}
		}
		s.exec("UPDATE signed_pieces SET data = $1 WHERE sha = $2", good, x.SHA256)
		s.exec("UPDATE signed_loops SET sha = $1 WHERE name = 'hello'", other.SHA256) // a row that points elsewhere
		got, err := s.Get(t.Context(), "hello")
		if err != nil || !fault.Is(got.Problem, fault.Verification) || got.Stopped() == "" {
			t.Errorf("%+v %v", got, err)
		}
		if err := s.StartTargets(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.has(s.targets(), "loop:hello paused")
		s.exec("DELETE FROM signed_pieces WHERE sha = $1", other.SHA256)
		if _, err := s.Artifact(t.Context(), other.SHA256); !fault.Is(err, fault.Verification) {
			t.Error(err)
		}
	})
}

func TestATrustThatCannotBeReadLetsNothingIn(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		x := s.install(hello(t, "1.0.0", nil))
		s.trust(TrustRow{Kind: Revoked, Key: signedtest.Public("thief")})
		s.exec("UPDATE signed_trust SET name = $1", signedtest.Public("maker")) // moved to another key
		if _, err := s.Artifact(t.Context(), x.SHA256); !fault.Is(err, fault.Verification) {
			t.Error(err)
		}
		if _, err := s.try(hello(t, "1.1.0", nil), nil); !fault.Is(err, fault.Verification) {
			t.Error(err)
		}
	})
}

func TestAnArtifactStaysAsLongAsARunIsPinnedToIt(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		old := s.install(hello(t, "1.0.0", nil))
		s.install(hello(t, "2.0.0", nil))
		var id string
		err := s.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			id, err = s.runs.StartTx(ctx, tx, run.Spec{Kind: Kind, Name: old.Subject(), Key: old.Subject(), Definition: old.Definition(), Input: []byte(`{}`)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-2 * keepFor).UnixMicro()
		forget := func(want int) {
			t.Helper()
			s.exec("UPDATE signed_artifacts SET at = $1", long)
			if err := s.Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := s.count("signed_artifacts"); n != want || s.count("signed_pieces") != want {
				t.Errorf("%d artifacts are kept, not %d", n, want)
			}
		}
		forget(2)
		knows := func() (ok bool) {
			err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
				ok, err = s.Knows(ctx, q, old.Definition())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if _, err := s.Artifact(t.Context(), old.SHA256); err != nil || !knows() {
			t.Error(err)
		}
		s.exec("UPDATE runs SET state = 'completed' WHERE id = $1", id)
		forget(1)
		if knows() {
			t.Error("it knows what is gone")
		}
	})
}

func TestWhatIsHandedOverIsTheWholeFile(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		data := hello(t, "1.0.0", nil)
		sha := Sum(data)
		if _, err := s.Inspect(t.Context(), sha); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		if have, err := s.Upload(sha, len(data), 0, data[:10]); have != 10 || err != nil {
			t.Error(have, err)
		}
		if _, err := s.Inspect(t.Context(), sha); !fault.Is(err, fault.NotFound) {
			t.Error("half a file is inspected:", err)
		}
		if have, err := s.Upload(sha, len(data), 0, data[:10]); have != 10 || !fault.Is(err, fault.Conflict) {
			t.Error("a piece out of order:", have, err)
		}
		wrong := append([]byte(nil), data[10:]...)
		wrong[0] ^= 1
		if _, err := s.Upload(sha, len(data), 10, wrong); !fault.Is(err, fault.Verification) {
			t.Error(err)
		}
		for _, bad := range []struct{ size, at int }{{0, 0}, {MaxArtifact + 1, 0}, {5, 0}} {
			if _, err := s.Upload(strings.Repeat("0", 64), bad.size, bad.at, data[:10]); err == nil {
				t.Errorf("%+v was taken", bad)
			}
		}
		for n := range maxUploads + 2 { // the oldest make room
			s.hand(append(hello(t, "1.0.0", nil), byte(n)))
		}
		if n := len(s.uploads.all); n > maxUploads {
			t.Errorf("%d are held", n)
		}
	})
}

func TestVersionsAreCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now, next string
		older     bool
		known     bool
	}{
		{"1.2.0", "1.1.9", true, true}, {"1.2.0", "1.10.0", false, true}, {"v2", "1.9", true, true}, {"1.2", "1.2.0", false, true},
		{"1.2.0", "1.2.0-rc1", true, true}, {"1.2.0-rc1", "1.2.0", false, true}, {"1.2.0-rc2", "1.2.0-rc1", true, true},
		{"nightly", "1.0.0", false, false}, {"1.0.0+a", "1.0.0+b", false, true},
	} {
		is, known := older(wasmloop.Manifest{Version: c.now}, wasmloop.Manifest{Version: c.next})
		if is != c.older || known != c.known {
			t.Errorf("%s after %s: older %v, known %v", c.next, c.now, is, known)
		}
	}
	if is, known := older(wasmloop.Manifest{Version: "x", BuiltAt: 20}, wasmloop.Manifest{Version: "y", BuiltAt: 10}); !is || !known {
		t.Error("when it was built is not looked at")
	}
}
