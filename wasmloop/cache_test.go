package wasmloop

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// cached runs a small guest by way of a cache, and returns what it logged as wrong.
func cached(t *testing.T, dir string, limit int64) []string {
	t.Helper()
	b := guestOf(t, wat(t, "outside"), func(m *Manifest, o *Options) { m.Provides, o.CacheDir, o.CacheLimit = nil, dir, limit })
	if err := b.Run(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	warned := b.said.warn // it fails one call on purpose
	return slices.DeleteFunc(warned, func(w string) bool { return strings.Contains(w, "outside of the module") })
}

// filesOf are the files below a folder.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestACompiledModuleIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &Artifact{Manifest: Manifest{Name: "guest"}, Module: wat(t, "outside")}
	if err := Compile(t.Context(), a, Options{CacheDir: dir}); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	if len(before) != 2 || !strings.HasSuffix(before[1], sumSuffix) {
		t.Fatalf("it kept %q", before)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(before[0], old, old); err != nil {
		t.Fatal(err)
	}
	if warned := cached(t, dir, 0); len(warned) > 0 {
		t.Errorf("it warned of %q", warned)
	}
	info, err := os.Stat(before[0])
	if err != nil || !info.ModTime().Equal(old) || !slices.Equal(filesOf(t, dir), before) {
		t.Errorf("it was compiled again: %v", err)
	}
	if err := Compile(t.Context(), &Artifact{Manifest: Manifest{Name: "guest"}, Module: wat(t, "norun")}, Options{CacheDir: dir}); err == nil {
		t.Error("what NewRunner refuses was compiled")
	}
}

// The engine runs what the cache holds as it is. Whatever is wrong with it, the module is
// compiled again, and what is right is there afterwards.
func TestAFileOfTheCacheThatIsNotWholeIsNotUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cached(t, dir, 0)
	files := filesOf(t, dir)
	code, sum := files[0], files[1]
	whole, err := os.ReadFile(code)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 0xff
		return b
	}
	for name, c := range map[string]struct {
		file string
		data []byte
	}{
		"empty": {code, nil}, "cut": {code, whole[:len(whole)/2]}, "cut at its end": {code, whole[:len(whole)-1]},
		"longer": {code, append(bytes.Clone(whole), 0)}, "another version": {code, spoil(8)}, "another magic": {code, spoil(0)},
		"a place of a function": {code, spoil(6 + 1 + 3 + 4 + 3)}, "an instruction": {code, spoil(len(whole) / 2)},
		"no digest": {sum, nil}, "another digest": {sum, []byte(digest(nil))},
	} {
		if err := os.WriteFile(c.file, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if warned := cached(t, dir, 0); len(warned) > 0 {
			t.Errorf("%s: it warned of %q", name, warned)
		}
		if got, err := os.ReadFile(code); err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%s: what is kept is not right again: %v", name, err)
		}
	}
	if err := os.Remove(sum); err != nil { // as a crash between the two leaves it
		t.Fatal(err)
	}
	cached(t, dir, 0)
	if !slices.Equal(filesOf(t, dir), files) {
		t.Errorf("it holds %q", filesOf(t, dir))
	}
}

func TestACacheThatCannotBeUsedIsDoneWithout(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if warned := cached(t, file, 0); len(warned) != 1 {
		t.Errorf("a file in place of a folder: it warned of %q", warned)
	}
	dir := t.TempDir()
	cached(t, dir, 0)
	for _, f := range filesOf(t, dir) { // folders where files should be
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(f, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if warned := cached(t, dir, 0); len(warned) != 1 {
		t.Errorf("folders in place of files: it warned of %q", warned)
	}
	if warned := cached(t, dir, 0); len(warned) > 0 {
		t.Errorf("it is not mended: %q", warned)
	}
	if os.Geteuid() == 0 {
		return // root writes where it likes
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if warned := cached(t, closed, 0); len(warned) != 1 {
		t.Errorf("a folder that cannot be written: it warned of %q", warned)
	}
}

func TestACacheIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n, name := range []string{"oldest", "old", "new"} {
		p := filepath.Join(dir, name, "deeper")
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, "f"), make([]byte, 100_000), 0o600); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(time.Duration(n-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), used, used); err != nil {
			t.Fatal(err)
		}
	}
	cached(t, dir, 250_000)
	if left := filesOf(t, dir); len(left) != 4 || slices.ContainsFunc(left, func(f string) bool { return strings.Contains(f, "oldest") }) {
		t.Errorf("it holds %q", left)
	}
	cached(t, dir, 1)
	if left := filesOf(t, dir); len(left) != 2 {
		t.Errorf("what is used is kept, and nothing else: %q", left)
	}
}
