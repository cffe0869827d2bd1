package wasmloop

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
)

// defaultCacheLimit bounds all compiled modules of a cache together. One of 3 MiB compiles
// to some 12 MiB.
const defaultCacheLimit = 512 << 20

// sumSuffix names the file that holds the digest of a compiled module.
const sumSuffix = ".sum"

// compileCache is the part of a cache on disk that belongs to one module: a folder that is
// named by the module's digest. The engine trusts what it reads of compiled code, so each
// file has its digest beside it, and one that has not, or another, is deleted before the
// engine looks for it. Whoever may write into the folder can still have the daemon run
// what he likes: it must be the daemon's alone.
type compileCache struct {
	root, dir string
	limit     int64
}

func newCompileCache(opts Options, module []byte) *compileCache {
	c := &compileCache{root: opts.CacheDir, limit: opts.CacheLimit}
	if c.limit <= 0 {
		c.limit = defaultCacheLimit
	}
	c.dir = filepath.Join(c.root, digest(module)[:32])
	return c
}

// open makes the folder and deletes from it what is not whole.
func (c *compileCache) open() (wazero.CompilationCache, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	err := c.each(func(file string) error {
		if sum, err := os.ReadFile(file + sumSuffix); err == nil { //nolint:gosec // a file of the cache
			if data, err := os.ReadFile(file); err == nil && string(sum) == digest(data) { //nolint:gosec // the same
				return nil
			}
		}
		if err := os.Remove(file + sumSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Remove(file)
	})
	if err != nil {
		return nil, err
	}
	return wazero.NewCompilationCacheWithDir(c.dir)
}

// each calls do with each file of the module that is no digest.
func (c *compileCache) each(do func(file string) error) error {
	return filepath.WalkDir(c.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(file, sumSuffix) {
			return err
		}
		return do(file)
	})
}

// keep notes the digests of what the engine wrote, and makes room.
func (c *compileCache) keep() error {
	err := c.each(func(file string) error {
		if _, err := os.Stat(file + sumSuffix); err == nil {
			return nil
		}
		data, err := os.ReadFile(file) //nolint:gosec // a file of the cache
		if err != nil {
			return err
		}
		return writeFile(file+sumSuffix, []byte(digest(data)))
	})
	if err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(c.dir, now, now); err != nil {
		return err
	}
	return c.shrink()
}

// shrink deletes what was not used for the longest time until the rest is within the
// limit. What was used last stays, whatever its size.
func (c *compileCache) shrink() error {
	entries, err := os.ReadDir(c.root)
	if err != nil {
		return err
	}
	type part struct {
		path string
		used time.Time
		size int64
	}
	var parts []part
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // another deleted it
		}
		p := part{filepath.Join(c.root, e.Name()), info.ModTime(), sizeOf(filepath.Join(c.root, e.Name()))}
		total += p.size
		if p.path != c.dir {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return a.used.Compare(b.used) })
	for _, p := range parts {
		if total <= c.limit {
			return nil
		}
		if err := os.RemoveAll(p.path); err != nil {
			return err
		}
		total -= p.size
	}
	return nil
}

// sizeOf is the size of all files below a path.
func sizeOf(path string) (n int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error { // what is gone has no size
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
