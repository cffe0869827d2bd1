package recipe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// Hash names a text.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// definition is the sealed part of a row of recipe_definitions.
type definition struct {
	File string `json:"file"`
	Text []byte `json:"text"`
}

// fileBody is the sealed part of a row of recipe_files.
type fileBody struct {
	Path     string    `json:"path"`
	Problems []Problem `json:"problems,omitempty"` // of what the file holds now
	Told     string    `json:"told,omitempty"`     // the problems the operator was told of
}

// row is a row of recipe_files.
type row struct {
	id, name, hash string
	at             int64
	fileBody
}

// fileID names a file. One of the directory has the same id wherever that is: the nodes of
// an instance have it in different places.
func (l *Library) fileID(path string) string {
	if rel, err := filepath.Rel(l.o.Dir, path); err == nil && l.o.Dir != "" && filepath.IsLocal(rel) {
		path = rel
	}
	return hex.EncodeToString(l.d.Vault.MAC("recipe.file", []byte(path))[:16])
}

func (l *Library) rows(ctx context.Context, q db.Q) ([]row, error) {
	return db.All(ctx, q, func(r *db.Rows) (x row, err error) {
		var sealed []byte
		if err = r.Scan(&x.id, &x.name, &x.hash, &sealed, &x.at); err != nil {
			return x, err
		}
		plain, err := l.d.Vault.Open(vault.RecipeFile, x.id, sealed)
		if err == nil {
			err = json.Unmarshal(plain, &x.fileBody)
		}
		if err != nil {
			err = fault.New(fault.Verification, "read recipe_files %s: %w", x.id, err)
		}
		return x, err
	}, "SELECT id, name, hash, body, at FROM recipe_files ORDER BY name, id")
}

func (l *Library) put(ctx context.Context, tx *db.Tx, x row) error {
	raw, err := json.Marshal(x.fileBody)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO recipe_files (id, name, hash, body, at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, hash = excluded.hash, body = excluded.body, at = excluded.at`,
		x.id, x.name, x.hash, l.d.Vault.Seal(vault.RecipeFile, x.id, raw), tx.Now())
	return err
}

// keep writes a definition down, if it is not there.
func (l *Library) keep(ctx context.Context, tx *db.Tx, hash, file string, text []byte) error {
	raw, err := json.Marshal(definition{File: file, Text: text})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO recipe_definitions (hash, body, at) VALUES ($1, $2, $3) ON CONFLICT (hash) DO NOTHING",
		hash, l.d.Vault.Seal(vault.RecipeText, hash, raw), tx.Now())
	return err
}

// Definition is the recipe of a hash as it was taken, whatever became of its file.
func (l *Library) Definition(ctx context.Context, hash string) (r *Recipe, err error) {
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		r, err = l.definitionIn(ctx, q, hash, "")
		return err
	})
	return r, err
}

// Text is what the recipe of a hash says.
func (l *Library) Text(ctx context.Context, hash string) (text []byte, err error) {
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		d, _, err := l.kept(ctx, q, hash)
		text = d.Text
		return err
	})
	return text, err
}

// definitionIn reads a definition. file is where that text is now, "" for where it was taken.
func (l *Library) definitionIn(ctx context.Context, q db.Q, hash, file string) (*Recipe, error) {
	d, at, err := l.kept(ctx, q, hash)
	if err != nil {
		return nil, err
	}
	file = cmp.Or(file, d.File)
	// By the clock of that day: a schedule that has fired for the last time was in order.
	r, problems := Read(file, d.Text, time.UnixMicro(at), l.d.Foreign)
	return r, Fault(problems)
}

// keepFor is how long a definition is kept at least, from when it was taken.
const keepFor = 30 * 24 * time.Hour

// Forget removes old definitions that no file has and no run can ask for: those of runs
// that have not ended, and of failed ones that can still be replayed, stay.
func (l *Library) Forget(ctx context.Context) error {
	l.loading.Lock() // a look may take a text that was there before
	defer l.loading.Unlock()
	return l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM recipe_definitions WHERE at < $1 AND hash NOT IN (SELECT hash FROM recipe_files)
			AND hash NOT IN (SELECT definition FROM runs WHERE kind = $2 AND (state NOT IN ($3, $4, $5)
				OR id IN (SELECT ref FROM dead_letters WHERE source = 'run')))`,
			tx.Now()-keepFor.Microseconds(), RunKind, string(run.Completed), string(run.Failed), string(run.Cancelled))
		return err
	})
}

// kept is a definition as it was written down, and when.
func (l *Library) kept(ctx context.Context, q db.Q, hash string) (d definition, at int64, err error) {
	var sealed []byte
	err = q.QueryRow(ctx, "SELECT body, at FROM recipe_definitions WHERE hash = $1", hash).Scan(&sealed, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return d, 0, fault.New(fault.NotFound, "no recipe with the hash %q is kept", hash)
	}
	if err != nil {
		return d, 0, err
	}
	plain, err := l.d.Vault.Open(vault.RecipeText, hash, sealed)
	if err != nil {
		return d, 0, err
	}
	if err := json.Unmarshal(plain, &d); err != nil || Hash(d.Text) != hash {
		return d, 0, fault.New(fault.Verification, "recipe_definitions %s is not what it was", hash)
	}
	return d, at, nil
}
