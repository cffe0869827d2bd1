package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func newVault(t testing.TB, seed byte) *vault.Vault {
	t.Helper()
	master := make([]byte, vault.KeySize)
	master[0] = seed
	v, err := vault.New(master)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// started returns a running audit that signs every fifth entry.
func started(t testing.TB, d *db.DB, v *vault.Vault) *Audit {
	t.Helper()
	return startedOn(t, d, v, "node-1")
}

func startedOn(t testing.TB, d *db.DB, v *vault.Vault, node string) *Audit {
	t.Helper()
	a := New(d, v, node, nil)
	a.every = 5
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

func add(t testing.TB, d *db.DB, a *Audit, e Entry) (ref Ref) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		ref, err = a.AppendTx(ctx, tx, e)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestEntriesOfManyCallersMakeOneChain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := started(t, d, newVault(t, 1))
		boom := errors.New("boom")
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := range 10 {
					err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
						if _, err := a.AppendTx(ctx, tx, Entry{Kind: "call", Outcome: fmt.Sprint(i, n)}); err != nil {
							return err
						}
						if n%5 == 0 {
							return boom
						}
						return nil
					})
					if want := n%5 == 0; errors.Is(err, boom) != want || !want && err != nil {
						t.Errorf("%d %d: %v", i, n, err)
					}
				}
			})
		}
		wg.Wait()
		if ref := add(t, d, a, Entry{Kind: "call"}); ref.Seq != 16*8+1 || len(ref.Hash) != 32 {
			t.Errorf("the last entry is %+v", ref)
		}
	})
}

func TestEntryHidesWhatAScopeIsAbout(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	a := started(t, d, newVault(t, 1))
	add(t, d, a, Entry{Kind: "call", Tool: "fs.write", Scopes: []string{"fs.write:/home/anna/divorce.txt", "spend"}, InputMAC: []byte{1, 2}, Outcome: "a<b>&"})
	var text string
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, `SELECT entry FROM audit`).Scan(&text)
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "divorce") || !strings.Contains(text, `"scopes":["fs.write:…","spend"],"scope_mac":"`) || !strings.Contains(text, `"input_mac":"0102"`) || !strings.Contains(text, `a<b>&`) {
		t.Error(text)
	}
}

func TestNoEntryWithoutAnOpenChain(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	a := New(d, newVault(t, 1), "node-1", nil)
	try := func() error {
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := a.AppendTx(ctx, tx, Entry{Kind: "call"})
			return err
		})
	}
	if err := try(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("before Start: %v", err)
	}
	for range 2 {
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(); err != nil {
		t.Errorf("started: %v", err)
	}
	later := started(t, d, newVault(t, 1))
	if err := try(); !fault.Is(err, fault.Conflict) {
		t.Errorf("after a newer process of the node: %v", err)
	}
	if err := a.Stop(t.Context()); !fault.Is(err, fault.Conflict) {
		t.Errorf("stop of a superseded chain: %v", err)
	}
	for range 2 {
		if err := later.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a = later
	if err := try(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("after Stop: %v", err)
	}
}
