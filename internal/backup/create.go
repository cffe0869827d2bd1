package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/vault"
)

// maxRows is how much of a table one member holds.
const maxRows = 4 << 20

// Source is what is backed up.
type Source struct {
	DB       *db.DB
	Vault    *vault.Vault
	Instance string
	Version  string // of this program
	Config   string // path of the configuration; it need not exist
	// Keys are files that belong to the key: what opens it always, what is it only if
	// IncludeKey is set. Those that do not exist are left out.
	Keys []KeyFile
	// Private are directories of the instance into which no backup is written.
	Private []string
	// Allowed is the one directory in them that is for backups.
	Allowed string
}

// KeyFile is a file that belongs to the key.
type KeyFile struct {
	Path string
	Raw  bool // who has it can read the store
}

// Options say where a backup goes.
type Options struct {
	Path       string // absolute
	Force      bool   // replace a file that is there
	IncludeKey bool
	Fast       bool           // do not make way for others: nobody else uses the store
	Progress   func(Progress) // may be nil
}

// Progress is how far a backup has come.
type Progress struct {
	Phase string // "writing" or "reading back"
	Done  int64
	Total int64 // about
}

// Result says what was written.
type Result struct {
	Path     string
	Size     int64
	Manifest Manifest
	Took     time.Duration
	WALPeak  int64 // largest size of SQLite's write-ahead log meanwhile
}

// Create writes a backup. It is done when the file has its name: flushed, read back
// and verified. After an error or a kill there is no file under that name, or the one
// that was there before. Errors: Conflict if there is one, Denied if the place is the
// instance's own, Unavailable if there is no room.
func Create(ctx context.Context, src Source, o Options) (res Result, err error) {
	begun := time.Now()
	if err := src.place(o); err != nil {
		return res, err
	}
	snap, err := src.DB.Snapshot(ctx)
	if err != nil {
		return res, fmt.Errorf("begin a backup: %w", err)
	}
	defer snap.Close()
	dir := filepath.Dir(o.Path)
	if err := room(dir, snap.Size+snap.Size/8); err != nil {
		return res, err
	}
	m := Manifest{
		Format: Format, ID: id.New("bak"), Ombud: src.Version, Schema: snap.Schema, Instance: src.Instance, Store: src.DB.Kind(),
		CreatedAt: src.DB.Time(), Key: src.Vault.Keys().PublicString(),
	}
	if err := snap.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if m.Audit, err = audit.MarksIn(ctx, q); err != nil {
			return err
		}
		return q.QueryRow(ctx, "SELECT value FROM heads WHERE name = 'log'").Scan(&m.Head)
	}); err != nil {
		return res, fmt.Errorf("begin a backup: %w", err)
	}
	clearLeftovers(dir)
	f, err := os.CreateTemp(dir, "."+filepath.Base(o.Path)+".*"+partial) // 0600
	if err != nil {
		return res, writeFault(err)
	}
	defer func() {
		_ = f.Close()           // flushed, or of no use
		_ = os.Remove(f.Name()) // gone after the rename
	}()
	if err := reserve(f, snap.Size); err != nil {
		return res, writeFault(err)
	}
	p := newPace(ctx, src.DB, f, o, snap.Size)
	w := &archive{w: p, at: m.CreatedAt / 1e6}
	if err := src.write(ctx, w, snap, &m, o); err != nil {
		return res, writeFault(err)
	}
	if err := p.flush(); err != nil {
		return res, writeFault(err)
	}
	snap.Close()                                  // the log may be folded again
	if err := f.Truncate(p.written); err != nil { // of what was reserved too much
		return res, writeFault(err)
	}
	failpoint.Hit("backup.written")
	if err := f.Sync(); err != nil {
		return res, writeFault(err)
	}
	forget(f)
	if err := p.readBack(ctx, f, m); err != nil {
		return res, err
	}
	failpoint.Hit("backup.rename.before")
	if err := free(o); err != nil {
		return res, err
	}
	if err := f.Close(); err != nil {
		return res, writeFault(err)
	}
	if err := os.Rename(f.Name(), o.Path); err != nil {
		return res, writeFault(err)
	}
	if err := db.SyncDir(dir); err != nil {
		return res, writeFault(err)
	}
	failpoint.Hit("backup.rename.after")
	return Result{Path: o.Path, Size: p.written, Manifest: m, Took: time.Since(begun), WALPeak: p.peak}, nil
}

// partial ends the name of a file that is being written.
const partial = ".partial"

// clearLeftovers removes what backups that were killed have left: one that is being
// written is never untouched for so long.
func clearLeftovers(dir string) {
	found, _ := filepath.Glob(filepath.Join(dir, ".*"+Extension+".*"+partial)) // the pattern is well formed
	for _, path := range found {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(path) // it only takes room
		}
	}
}

// place refuses a path that is not for backups.
func (src *Source) place(o Options) error {
	if !filepath.IsAbs(o.Path) {
		return fault.New(fault.Internal, "a backup to %q, which is not an absolute path", o.Path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(o.Path))
	if err != nil {
		return fault.New(fault.Invalid, "the directory of the backup: %w", err).WithHint("make it first: mkdir -p %s", filepath.Dir(o.Path))
	}
	for _, own := range src.Private {
		if real, err := filepath.EvalSymlinks(own); err == nil {
			own = real
		}
		allowed := src.Allowed
		if real, err := filepath.EvalSymlinks(allowed); err == nil {
			allowed = real
		}
		if within(dir, own) && !within(dir, allowed) {
			return fault.New(fault.Denied, "%s belongs to the instance itself", dir).
				WithHint("choose a place outside of it, best on another disk; %s is allowed too", src.Allowed)
		}
	}
	return free(o)
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return dir != "" && err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// free makes sure that nothing is overwritten that should not be.
func free(o Options) error {
	info, err := os.Lstat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return writeFault(err)
	case !info.Mode().IsRegular():
		return fault.New(fault.Conflict, "%s is there and is not a file", o.Path).WithHint("choose another name")
	case !o.Force:
		return fault.New(fault.Conflict, "%s is there", o.Path).WithHint("choose another name, or replace it with --force")
	}
	return nil
}

// spare is the room a backup leaves on a disk, for the store that may be on it.
const spare = 64 << 20

func room(dir string, need int64) error {
	have, known := db.FreeBytes(dir)
	if known && have < need+spare {
		return fault.New(fault.Unavailable, "the disk of %s has %d MiB free, the backup needs %d MiB and leaves %d", dir, have>>20, (need>>20)+1, int64(spare)>>20).
			WithHint("free some space, or back up to another disk")
	}
	return nil
}

const readme = `This is a backup of an ombud instance. It is a tar archive; check it with

    ombud backup verify FILE

and put it back with

    ombud restore FILE

manifest.json says of when it is, what is in it and what each part's SHA-256 is.
What the store keeps sealed is sealed in here too: without the key of the instance
nobody can read it, you neither.
`

func (src *Source) write(ctx context.Context, w *archive, snap *db.Snapshot, m *Manifest, o Options) error {
	if err := w.addBytes(partReadme, []byte(readme)); err != nil {
		return err
	}
	var err error
	if src.DB.Postgres() {
		err = writeRows(ctx, w, snap)
	} else {
		err = w.add(partStore, snap.Size, func(to io.Writer) error {
			return snap.Pages(ctx, func(page []byte) error {
				_, err := to.Write(page)
				return err
			})
		})
	}
	if err != nil {
		return err
	}
	if err := addFile(w, partConfig, src.Config); err != nil {
		return err
	}
	for _, k := range src.Keys {
		if k.Raw && !o.IncludeKey {
			continue
		}
		before := len(w.parts)
		if err := addFile(w, partKey+filepath.Base(k.Path), k.Path); err != nil {
			return err
		}
		m.KeyIncluded = m.KeyIncluded || k.Raw && len(w.parts) > before
	}
	if o.IncludeKey && !m.KeyIncluded {
		return fault.New(fault.Conflict, "there is no key file that could be included").
			WithHint("what opens this vault is not a file: leave out --include-key")
	}
	return w.finish(m, src.Vault.SigningKey())
}

// addFile adds a small file if it exists.
func addFile(w *archive, name, path string) error {
	content, err := os.ReadFile(path) //nolint:gosec // the instance names it
	switch {
	case path == "" || errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fault.New(fault.Permission, "back up %s: %w", path, err)
	case len(content) > maxSmall:
		return fault.New(fault.Invalid, "back up %s: it has %d bytes", path, len(content))
	}
	return w.addBytes(name, content)
}

// writeRows writes every table, a few MiB a member.
func writeRows(ctx context.Context, w *archive, snap *db.Snapshot) error {
	tables, err := snap.Tables(ctx)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(tables, "", " ")
	if err != nil {
		return err
	}
	if err := w.addBytes(partTables, append(text, '\n')); err != nil {
		return err
	}
	n := 0
	for _, t := range tables {
		var chunk []byte
		flush := func() error {
			n++
			err := w.addBytes(fmt.Sprintf("%s%04d-%s", partRows, n, t.Name), chunk)
			chunk = chunk[:0]
			return err
		}
		err := snap.Rows(ctx, t, func(row []any) (err error) {
			if chunk, err = appendRow(chunk, row); err != nil || len(chunk) < maxRows {
				return err
			}
			return flush()
		})
		if err == nil && len(chunk) > 0 {
			err = flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFault classifies an error of writing the file.
func writeFault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.New(fault.Permission, "write the backup: %w", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG):
		return fault.New(fault.Unavailable, "write the backup: %w", err).WithHint("nothing is left of it; free some space, or back up to another disk")
	}
	return fault.New(fault.Unavailable, "write the backup: %w", err)
}
