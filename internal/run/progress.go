package run

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// Progress is how far a run says it has come. It is for people: nothing is decided by
// it, and the last words before a crash may be lost.
type Progress struct {
	Text  string `json:"text"`
	Done  int    `json:"done"`  // of Total, in a unit of its own
	Total int    `json:"total"` // 0 if it is not known
	At    int64  `json:"at"`    // Unix microseconds
}

// maxProgress bounds the text.
const maxProgress = 500

// Progress tells how far the run has come. It may be called at any rate: what is
// stored is the last of each Options.Poll.
func (r *Run) Progress(text string, done, total int) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.e.progress[r.rec.ID] = Progress{Text: fault.Cut(text, maxProgress), Done: done, Total: total, At: r.e.db.Time()}
}

// saveProgress writes what was told since the last time, in one commit.
func (e *Engine) saveProgress(ctx context.Context) error {
	told := e.takeProgress()
	if len(told) == 0 {
		return nil
	}
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for id, p := range told {
			text, err := json.Marshal(p)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE runs SET progress = $1 WHERE id = $2 AND ended = 0", e.vault.Seal(vault.RunProgress, id, text), id); err != nil {
				return err
			}
			tx.Notify(topicOf(id))
		}
		return nil
	})
}

// takeProgress returns what was told since the last time; nobody else has it then.
func (e *Engine) takeProgress() map[string]Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.progress
	e.progress = map[string]Progress{}
	return told
}

// topicOf is notified when something is there that a run may wait for, or when it
// told how far it is.
func topicOf(run string) string { return "run/" + run }

func (e *Engine) openProgress(run string, sealed []byte) (*Progress, error) {
	text, err := e.open(vault.RunProgress, run, sealed)
	if err != nil || text == nil {
		return nil, err
	}
	p := &Progress{}
	return p, json.Unmarshal(text, p)
}
