package act

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/tool"
)

// keeping is what is kept for a call, if anything.
type keeping struct {
	kept tool.Kept
	time time.Duration // what keeping the state after it may take
}

// keepFiles keeps what the call may change: before the intent, so that a crash meanwhile
// leaves a call that was never begun, and not one of unknown outcome.
func (a *Act) keepFiles(ctx context.Context, k *call) keeping {
	if a.Keeper == nil || k.def.Touches == nil || k.def.ReadOnly {
		return keeping{}
	}
	paths := k.def.Touches(k.input)
	if len(paths) == 0 {
		return keeping{}
	}
	_, begun := k.run.Recorded(k.Step)
	kept := a.Keeper.Before(ctx, tool.Touch{
		Run: k.run.ID(), Step: k.Step, Tool: k.Tool, Subject: k.Authority.Subject, Summary: k.summary, Input: k.input, Paths: paths, Again: begun,
	})
	if kept == nil {
		return keeping{}
	}
	return keeping{kept, kept.Time()}
}

// OpenTx joins the commit of the intent.
func (k keeping) OpenTx(ctx context.Context, tx *db.Tx) error {
	if k.kept == nil {
		return nil
	}
	return k.kept.OpenTx(ctx, tx)
}

// After is called when the effect has ended.
func (k keeping) After(ctx context.Context) {
	if k.kept != nil {
		k.kept.After(ctx)
	}
}

// CloseTx joins the commit of the outcome.
func (k keeping) CloseTx(ctx context.Context, tx *db.Tx) error {
	if k.kept == nil {
		return nil
	}
	return k.kept.CloseTx(ctx, tx)
}

// Done lets go of what is kept in memory.
func (k keeping) Done() {
	if k.kept != nil {
		k.kept.Done()
	}
}
