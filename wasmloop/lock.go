package wasmloop

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

const lockVersion = 1

// Lock is the whole lockfile: what is installed, as it was approved.
type Lock struct {
	Version int     `json:"version"`
	Entries []Entry `json:"loops"`
}

// Entry is one installed loop.
type Entry struct {
	Name         string    `json:"name"`
	Version      string    `json:"version"`
	SHA256       string    `json:"sha256"` // of the module
	Publisher    string    `json:"publisher"`
	Registry     string    `json:"registry,omitempty"`
	Tier         Tier      `json:"tier"`
	Host         []string  `json:"host"`
	Capabilities []string  `json:"capabilities"`
	Source       string    `json:"source,omitempty"`
	File         string    `json:"file"` // of the artifact, in the same directory
	InstalledBy  string    `json:"installed_by"`
	InstalledAt  time.Time `json:"installed_at"`
	Enabled      bool      `json:"enabled"`

	// FileSHA256 pins the artifact as a whole. Lockfiles of the described system have none
	// and pin the module only; what they name is approved anew before it is pinned.
	FileSHA256 string   `json:"file_sha256,omitempty"`
	Tools      []string `json:"tools,omitempty"`    // that it may call
	Provides   []string `json:"provides,omitempty"` // names of tools it lends

	// Granting is set while an install writes the grants of an entry. If it is found
	// later, that install was cut off, and the grants are written again.
	Granting bool `json:"granting,omitempty"`
}

// LoadLock reads the lockfile. A missing file is an empty lock, not an error.
func LoadLock(dir string) (*Lock, error) {
	data, err := os.ReadFile(LockPath(dir)) //nolint:gosec // the directory is the caller's
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{Version: lockVersion}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lockfile: %w", err)
	}
	var l Lock
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, LockPath(dir), err)
	}
	if l.Version != lockVersion {
		return nil, fmt.Errorf("%w: %s has version %d; this program reads %d", ErrMalformed, LockPath(dir), l.Version, lockVersion)
	}
	return &l, nil
}

// Get returns an entry by name.
func (l *Lock) Get(name string) (Entry, bool) {
	i := l.index(name)
	if i < 0 {
		return Entry{}, false
	}
	return l.Entries[i], true
}

// Put adds or replaces an entry.
func (l *Lock) Put(e Entry) {
	if i := l.index(e.Name); i >= 0 {
		l.Entries[i] = e
		return
	}
	l.Entries = append(l.Entries, e)
}

// Remove drops an entry, reporting whether it was there.
func (l *Lock) Remove(name string) bool {
	i := l.index(name)
	if i >= 0 {
		l.Entries = slices.Delete(l.Entries, i, i+1)
	}
	return i >= 0
}

func (l *Lock) index(name string) int {
	return slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Name == name })
}

// Save writes the lockfile, sorted so that a diff shows what changed and not what moved.
func (l *Lock) Save(dir string) error {
	l.Version = lockVersion
	slices.SortFunc(l.Entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	if err := writeJSON(LockPath(dir), l); err != nil {
		return fmt.Errorf("save the lockfile: %w", err)
	}
	return nil
}
