package audit

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func exported(t testing.TB, d *db.DB) ([]byte, written) {
	t.Helper()
	w := write(t, d)
	var b bytes.Buffer
	if err := w.last.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w
}

func TestExportIsVerifiedWithThePublicKeyAlone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		file, w := exported(t, d)
		auditor, err := vault.ParsePublicKey(w.v.Keys().PublicString())
		if err != nil {
			t.Fatal(err)
		}
		for who, keys := range map[string]vault.Keys{"auditor": auditor, "owner": w.v.Keys()} {
			if rep, err := VerifyFile(bytes.NewReader(file), keys); rep != wantReport || err != nil {
				t.Errorf("%s: %+v, %v", who, rep, err)
			}
		}
		if _, err := VerifyFile(bytes.NewReader(file), newVault(t, 2).Keys()); !fault.Is(err, fault.Verification) {
			t.Errorf("another key: %v", err)
		}
	})
}

func TestExportOfADamagedRecordNamesTheEntry(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	w := write(t, d)
	change(t, d, `UPDATE audit SET entry = replace(entry, 'agent:a', 'agent:b') WHERE seq = 12`)
	var b bytes.Buffer
	if err := w.last.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	_, err := VerifyFile(&b, vault.Keys{Public: w.v.PublicKey()})
	if bad, ok := errors.AsType[*Bad](err); !ok || bad.Seq != 12 || !fault.Is(err, fault.Verification) {
		t.Error(err)
	}
}

func TestAnyChangeOfAFileIsFound(t *testing.T) {
	t.Parallel()
	file, w := exported(t, dbtest.SQLite(t))
	lines := slices.Collect(strings.Lines(string(file)))
	keys := vault.Keys{Public: w.v.PublicKey()}
	rapid.Check(t, func(t *rapid.T) {
		now := slices.Clone(lines)
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		switch rapid.SampledFrom([]string{"flip", "delete", "swap", "repeat", "cut"}).Draw(t, "how") {
		case "flip":
			b := []byte(now[i])
			at := rapid.IntRange(0, len(b)-1).Draw(t, "byte")
			b[at] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
			if i == len(lines)-1 && at == len(b)-1 {
				t.Skip("white space after the closing line is no content")
			}
			now[i] = string(b)
		case "delete":
			now = slices.Delete(now, i, i+1)
		case "swap":
			j := rapid.IntRange(0, len(lines)-1).Draw(t, "with")
			if now[i] == now[j] {
				t.Skip("the same line")
			}
			now[i], now[j] = now[j], now[i]
		case "repeat":
			now = slices.Insert(now, i, now[i])
		case "cut":
			now = now[:i]
		}
		if _, err := VerifyFile(strings.NewReader(strings.Join(now, "")), keys); !fault.Is(err, fault.Verification) {
			t.Fatalf("not found: %v", err)
		}
	})
}

// update writes testdata/export.jsonl anew. Files of people keep the old format:
// when this is needed, VerifyFile must still read what was there before.
var update = flag.Bool("update", false, "write testdata/export.jsonl anew")

const golden = "testdata/export.jsonl"

func TestExportOfAnEarlierBuildIsStillVerified(t *testing.T) {
	t.Parallel()
	if *update {
		file, _ := exported(t, dbtest.SQLite(t))
		if err := os.WriteFile(golden, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	if rep, err := VerifyFile(f, newVault(t, 1).Keys()); rep != wantReport || err != nil {
		t.Errorf("%+v, %v", rep, err)
	}
}

func FuzzVerifyFile(f *testing.F) {
	file, err := os.ReadFile(golden)
	if err != nil {
		f.Fatal(err)
	}
	keys := newVault(f, 1).Keys()
	f.Add(file)
	f.Add([]byte(nil))
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"header":{"format":"ombud.audit.v1","key":"` + keys.PublicString() + `"}}` + "\n" + `{"entry":{"record":{},"hash":"","mac":""}}`))
	f.Add(bytes.Repeat([]byte("x"), maxLine+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		rep, err := VerifyFile(bytes.NewReader(b), keys)
		if err == nil && !bytes.Equal(bytes.TrimRight(b, "\r\n"), bytes.TrimRight(file, "\n")) {
			t.Errorf("another file passes: %+v", rep)
		}
		if err != nil && !fault.Is(err, fault.Verification) {
			t.Errorf("class %s: %v", fault.ClassOf(err), err)
		}
	})
}
