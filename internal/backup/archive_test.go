package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func testVault(t testing.TB) *vault.Vault {
	t.Helper()
	v, err := vault.New(bytes.Repeat([]byte{7}, vault.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sample is a small whole backup with the given members behind README.
func sample(t testing.TB, members ...Part) []byte {
	t.Helper()
	v := testVault(t)
	var b bytes.Buffer
	a := &archive{w: &b, at: 1_800_000_000}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.addBytes(partReadme, []byte(readme)))
	for _, p := range members {
		must(a.addBytes(p.Name, bytes.Repeat([]byte("content of it;"), int(p.Size)/14+1)[:p.Size]))
	}
	must(a.finish(&Manifest{
		Format: Format, ID: "bak_1", Ombud: "test", Schema: 1, Instance: "default", Store: "sqlite", CreatedAt: 1_800_000_000_000_005,
		Key: v.Keys().PublicString(),
	}, v.SigningKey()))
	return b.Bytes()
}

func usual(t testing.TB) []byte {
	t.Helper()
	return sample(t, Part{Name: partStore, Size: 5000}, Part{Name: partConfig, Size: 0}, Part{Name: partKey + "vault", Size: 512})
}

func scan(b []byte) (Manifest, error) { return Scan(context.Background(), bytes.NewReader(b), nil) }

// Somebody without ombud gets at what is in a backup with any tar.
func TestAnyTarReadsABackup(t *testing.T) {
	t.Parallel()
	r := tar.NewReader(bytes.NewReader(usual(t)))
	var names []string
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 || h.Typeflag != tar.TypeReg || h.ModTime.Unix() != 1_800_000_000 {
			t.Errorf("%+v", h)
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil || n != h.Size {
			t.Errorf("%s: %d of %d bytes, %v", h.Name, n, h.Size, err)
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "README store.db config.yaml key/vault manifest.json manifest.sig" {
		t.Errorf("members %s", got)
	}
}

func TestHeadersHaveOneForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z0-9./_-]{1,99}`).Draw(t, "name")
		size := rapid.OneOf(rapid.Int64Range(0, 1<<40), rapid.SampledFrom([]int64{0, 511, 512, maxOctal, maxOctal + 1, 1<<62 - 1})).Draw(t, "size")
		at := rapid.Int64Range(0, 1<<33-1).Draw(t, "at")
		b, err := header(name, size, at)
		if err != nil {
			t.Fatal(err)
		}
		n, s, w, err := parseHeader(b)
		if n != name || s != size || w != at || err != nil {
			t.Fatalf("%q %d %d %v", n, s, w, err)
		}
		h, err := tar.NewReader(io.MultiReader(bytes.NewReader(b[:]), iotest.ErrReader(io.EOF))).Next()
		if err != nil || h.Name != name || h.Size != size {
			t.Fatalf("tar reads %+v, %v", h, err)
		}
		i := rapid.IntRange(0, block-1).Draw(t, "byte")
		b[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, _, _, err := parseHeader(b); err == nil {
			t.Fatalf("byte %d may be another", i)
		}
	})
	for _, name := range []string{"", strings.Repeat("n", 100), "a\x00b"} {
		if _, err := header(name, 1, 1); err == nil {
			t.Errorf("a member called %q", name)
		}
	}
}

func TestAWholeBackupIsRead(t *testing.T) {
	t.Parallel()
	content := map[string]int64{}
	m, err := Scan(t.Context(), iotest.OneByteReader(bytes.NewReader(usual(t))), func(name string, size int64, r io.Reader) error {
		n, err := io.Copy(io.Discard, io.LimitReader(r, size/2)) // what is not read is skipped
		content[name] = n
		return err
	})
	if err != nil || m.ID != "bak_1" || len(m.Parts) != 4 || content[partStore] != 2500 || len(content) != 4 {
		t.Errorf("%+v, %v, %v", m, content, err)
	}
}

// TestAnyChangedByteIsFound flips a bit in every byte of a small backup, and cuts and
// lengthens it everywhere.
func TestAnyChangedByteIsFound(t *testing.T) {
	t.Parallel()
	b := usual(t)
	if _, err := scan(b); err != nil {
		t.Fatal(err)
	}
	bits := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1 << bits.IntN(8)
		if _, err := scan(c); err == nil {
			t.Fatalf("byte %d of %d", i, len(b))
		} else if !fault.Is(err, fault.Verification) && !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
			t.Fatalf("byte %d: class %s: %v", i, fault.ClassOf(err), err)
		}
		if _, err := scan(b[:i]); !fault.Is(err, fault.Verification) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	for _, more := range []string{"\x00", "x", string(make([]byte, block))} {
		if _, err := scan(append(bytes.Clone(b), more...)); !fault.Is(err, fault.Verification) {
			t.Errorf("with %q behind it: %v", more[:1], err)
		}
	}
}

func TestDamageNamesThePart(t *testing.T) {
	t.Parallel()
	b := usual(t)
	for what, want := range map[string]string{
		"content of it;": "at store.db",
		"bak_1":          "at manifest.json",
		"This is a back": "at README",
	} {
		i := bytes.Index(b, []byte(what))
		c := bytes.Clone(b)
		c[i+3] ^= 1
		if _, err := scan(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q changed: %v, want %q", what, err, want)
		}
	}
}

// What is signed by somebody else is whole in itself: who reads it compares the key.
// A manifest that says another form is for a newer ombud.
func TestOtherFormsAreToldFromDamage(t *testing.T) {
	t.Parallel()
	v := testVault(t)
	var b bytes.Buffer
	a := &archive{w: &b, at: 5}
	if err := a.addBytes(partReadme, []byte(readme)); err != nil {
		t.Fatal(err)
	}
	if err := a.finish(&Manifest{Format: "ombud.backup.v2", CreatedAt: 5e6, Key: v.Keys().PublicString()}, v.SigningKey()); err != nil {
		t.Fatal(err)
	}
	if _, err := scan(b.Bytes()); !fault.Is(err, fault.Config) {
		t.Errorf("another format: %v", err)
	}
	for _, other := range []string{"", "PK\x03\x04" + strings.Repeat("x", 600), strings.Repeat("\x00", 2*block)} {
		if _, err := scan([]byte(other)); !fault.Is(err, fault.Verification) {
			t.Errorf("no backup at all: %v", err)
		}
	}
	// Members the manifest does not name, or in another order.
	whole := usual(t)
	if _, err := scan(append(bytes.Clone(whole[:2*block]), whole...)); !fault.Is(err, fault.Verification) {
		t.Errorf("a member twice: %v", err)
	}
}

func TestReadingStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scan(ctx, bytes.NewReader(usual(t)), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Scan(t.Context(), iotest.ErrReader(errors.New("broken cable")), nil); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

func FuzzScan(f *testing.F) {
	whole := usual(f)
	f.Add(whole)
	f.Add(whole[:1000])
	f.Add(sample(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := scan(b)
		if err == nil && m.Format != Format {
			t.Errorf("accepted %+v", m)
		}
		if err != nil && fault.Is(err, fault.Internal) {
			t.Errorf("class internal: %v", err)
		}
	})
}

func TestRowsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.String(), func(v string) any { return v }),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(v []byte) any { return append([]byte{}, v...) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 6).Draw(t, "columns")
		rows := rapid.SliceOf(rapid.SliceOfN(value, columns, columns)).Draw(t, "rows")
		var b []byte
		var err error
		for _, row := range rows {
			if b, err = appendRow(b, row); err != nil {
				t.Fatal(err)
			}
		}
		got, err := parseRows(b, columns)
		if err != nil || len(got) != len(rows) {
			t.Fatalf("%d of %d rows, %v", len(got), len(rows), err)
		}
		for i := range rows {
			for j := range rows[i] {
				same := got[i][j] == nil && rows[i][j] == nil
				switch v := rows[i][j].(type) {
				case int64:
					same = got[i][j] == v
				case string:
					same = got[i][j] == v
				case []byte:
					g, is := got[i][j].([]byte)
					same = is && g != nil && bytes.Equal(g, v)
				}
				if !same {
					t.Fatalf("%#v became %#v", rows[i][j], got[i][j])
				}
			}
		}
	})
}

func FuzzParseRows(f *testing.F) {
	row, err := appendRow(nil, []any{nil, int64(-5), "text", []byte{0, 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(row, 4)
	f.Add([]byte{valueText, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 1)
	f.Fuzz(func(t *testing.T, b []byte, columns int) {
		if columns > 1000 {
			return
		}
		rows, err := parseRows(b, columns)
		if err != nil {
			return
		}
		for _, r := range rows {
			if len(r) != columns {
				t.Errorf("a row of %d values", len(r))
			}
		}
	})
}
