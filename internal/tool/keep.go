package tool

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/db"
)

// Touch is a call that may change files, as its keeper sees it.
type Touch struct {
	Run, Step, Tool, Subject, Summary string

	Input json.RawMessage // canonical
	Paths []string        // what Definition.Touches said
	Again bool            // the call was begun before a crash, and what it may change was kept then
}

// Keeper keeps what a call is about to change, so that it can be taken back. It
// never keeps a call from being made: where it cannot keep, it says so in its record.
type Keeper interface {
	// Before is called when a call is decided and its intent is not committed yet. It
	// returns nil if there is nothing to keep.
	Before(ctx context.Context, t Touch) Kept
}

// Kept is what was kept for one call.
type Kept interface {
	OpenTx(ctx context.Context, tx *db.Tx) error  // joins the commit of the intent; may run twice
	Time() time.Duration                          // what After may take
	After(ctx context.Context)                    // the effect has ended, well or not
	CloseTx(ctx context.Context, tx *db.Tx) error // joins the commit of the outcome, also if After was never called; may run twice
	Done()                                        // the call is over, or was never made
}
