package fs

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// Labels keeps of each file the tools wrote the label of the context it was written
// in. Paths are absolute and without links.
type Labels interface {
	Note(ctx context.Context, path string, content []byte, l label.Label, run string) error
	// Of returns the label of a file that was noted, and whether content is what was
	// written then; known is false for any other file.
	Of(ctx context.Context, path string) (l label.Label, wrote func(content []byte) bool, known bool, err error)
	Drop(ctx context.Context, path string) error
}

// Kept is Labels as rows of the store.
type Kept struct {
	db    *db.DB
	vault *vault.Vault
}

var _ Labels = (*Kept)(nil)

// NewKept returns the labels kept in a store.
func NewKept(d *db.DB, v *vault.Vault) *Kept { return &Kept{db: d, vault: v} }

func (k *Kept) row(path string) []byte { return k.vault.Blind(vault.FilePath, path) }

// Note keeps the label of a file as it was just written.
func (k *Kept) Note(ctx context.Context, path string, content []byte, l label.Label, run string) error {
	return k.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO file_labels (path, digest, label, run, at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (path) DO UPDATE SET digest = excluded.digest, label = excluded.label, run = excluded.run, at = excluded.at`,
			k.row(path), k.vault.MAC("file.content", content), k.vault.Seal(vault.FileLabel, path, l.Marshal()), run, tx.Now())
		return err
	})
}

// Of looks a file up.
func (k *Kept) Of(ctx context.Context, path string) (l label.Label, wrote func([]byte) bool, known bool, err error) {
	var digest, sealed []byte
	err = k.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT digest, label FROM file_labels WHERE path = $1", k.row(path)).Scan(&digest, &sealed)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return l, nil, false, nil
	}
	if err != nil {
		return l, nil, false, err
	}
	plain, err := k.vault.Open(vault.FileLabel, path, sealed)
	if err != nil {
		return l, nil, false, err
	}
	if err := json.Unmarshal(plain, &l); err != nil {
		return l, nil, false, fault.New(fault.Verification, "read the label of a file: %w", err)
	}
	return l, func(content []byte) bool { return bytes.Equal(digest, k.vault.MAC("file.content", content)) }, true, nil
}

// Drop forgets a file.
func (k *Kept) Drop(ctx context.Context, path string) error {
	return k.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM file_labels WHERE path = $1", k.row(path))
		return err
	})
}

type noLabels struct{}

func (noLabels) Note(context.Context, string, []byte, label.Label, string) error { return nil }
func (noLabels) Drop(context.Context, string) error                              { return nil }
func (noLabels) Of(context.Context, string) (label.Label, func([]byte) bool, bool, error) {
	return label.Label{}, nil, false, nil
}

// note keeps the label of what a call wrote. If the process ends before, the file
// counts as anybody's, which is never less careful.
func (t *Tools) note(ctx context.Context, in writeInput, inv tool.Invocation) error {
	path, err := t.root.Resolve(in.Path)
	if err == nil {
		err = t.labels.Note(context.WithoutCancel(ctx), path, []byte(in.Content), inv.Label, inv.Run)
	}
	if err != nil {
		return fault.New(fault.Unknown, "%s was written, but where its content comes from could not be kept: %w", tool.Show(in.Path), err)
	}
	return nil
}

// labelled returns who wrote a file, and its content. A file that is as a call wrote
// it has the label of that call; one that somebody changed since has that of both,
// and any other was written by the source of the directory. What is judged is what
// is then read: the content of a known file is taken into memory first.
func (t *Tools) labelled(ctx context.Context, name string, f io.ReaderAt, size int64) (label.Label, io.ReaderAt, error) {
	anybody := label.Of(t.source, label.OperatorOnly)
	path, err := t.root.Resolve(name)
	if err != nil {
		return anybody, f, err
	}
	l, wrote, known, err := t.labels.Of(ctx, path)
	if err != nil {
		return anybody, f, fmt.Errorf("read %s: %w", tool.Show(name), err)
	}
	if !known {
		return anybody, f, nil
	}
	both := label.Join(l, anybody)
	if size > maxWrite || len(l.Sources) == 0 {
		return both, f, nil
	}
	content, err := io.ReadAll(io.NewSectionReader(f, 0, maxWrite+1))
	if err != nil {
		return both, f, unreadable(name, err)
	}
	if !wrote(content) {
		return both, bytes.NewReader(content), nil
	}
	return l, bytes.NewReader(content), nil
}
