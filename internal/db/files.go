package db

import (
	"errors"
	"os"

	"github.com/ombud-run/ombud/internal/fault"
)

// Files are the files the store stands on, as they are on disk now.
func (d *DB) Files() []string {
	var out []string
	if d.lockPath != "" {
		out = append(out, d.lockPath)
	}
	if !d.postgres {
		out = append(out, d.path)
	}
	return out
}

// Condemn makes every further write fail with cause: what would be acknowledged
// could not be found again. Reads go on. It cannot be undone.
func (d *DB) Condemn(cause error) { d.condemned.CompareAndSwap(nil, &cause) }

// Ground remembers which files a store stands on.
type Ground struct {
	paths []string
	infos []os.FileInfo
}

// Ground looks at the store's files. Take it once, right after Open.
func (d *DB) Ground() (*Ground, error) {
	g := &Ground{paths: d.Files()}
	for _, path := range g.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fault.New(fault.Unavailable, "look at the store: %w", err)
		}
		g.infos = append(g.infos, info)
	}
	return g, nil
}

// Check fails if a file was removed or replaced: what is written to it from then on
// is lost when the process ends, and another process may take its name.
func (g *Ground) Check() error {
	for i, path := range g.paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fault.New(fault.Verification, "%s was removed while the daemon had it: nothing more is taken", path).
				WithHint("put the store back from a copy and start again")
		case err == nil && !os.SameFile(info, g.infos[i]):
			return fault.New(fault.Verification, "%s was replaced while the daemon had it: nothing more is taken", path).
				WithHint("stop the daemon before you put another store in its place")
		}
		// Any other error is of looking, not of the file.
	}
	return nil
}
