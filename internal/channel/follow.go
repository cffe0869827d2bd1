package channel

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/channel/markup"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

const (
	maxFollowed = 64              // turns that are shown while they run
	typingEvery = 4 * time.Second // networks show it for about five
	longestShow = 15 * time.Minute
)

// preview is an answer that is shown as it is written. Its message becomes the first piece
// of the answer. Whether it was sent is a row, as with every piece; what it says is not
// kept, for it is only a part of what comes.
type preview struct {
	mu   sync.Mutex
	over bool // the answer itself is being sent
}

// previewItem is the item whose one piece is the message of a preview.
func previewItem(run string) string { return "preview:" + run }

// follow shows that an answer is being written, and, to the operator who wants it, what of
// it there is.
func (l *line) follow(run string, at Place, operator bool) {
	a, err := l.ready()
	if err != nil {
		return
	}
	set, _ := l.settings()
	typer, types := a.(Typer)
	editor, edits := a.(Editor)
	every := a.Capabilities().Edits
	shows := edits && every > 0 && operator && set.Stream
	if !types && !shows {
		return
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.run == nil || l.c.followed >= maxFollowed {
		return
	}
	l.c.followed++
	ctx, cancel := context.WithTimeout(l.c.run, longestShow)
	l.c.going.Go(func() {
		defer func() {
			cancel()
			l.c.mu.Lock()
			defer l.c.mu.Unlock()
			l.c.followed--
		}()
		if !shows {
			editor = nil
		}
		l.show(ctx, run, at, typer, editor, a, every)
	})
}

func (l *line) show(ctx context.Context, run string, at Place, typer Typer, editor Editor, a Adapter, every time.Duration) {
	notes, stop := l.c.Agents.Watch(run)
	defer stop()
	p := &preview{}
	if editor != nil {
		l.mu.Lock()
		l.previews[run] = p
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.previews, run)
		}()
	} else {
		every = typingEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var text strings.Builder
	var shown string
	typed := time.Time{}
	for {
		if typer != nil && time.Since(typed) >= typingEvery && text.Len() == 0 {
			typed = time.Now()
			l.quietly("typing", func() error { return typer.Typing(ctx, at) })
		}
		select {
		case n := <-notes:
			if n.Restart {
				text.Reset()
			}
			text.WriteString(n.Text)
		case <-tick.C:
			if editor != nil && text.Len() > 0 && text.String() != shown {
				shown = text.String()
				if !l.showText(ctx, run, at, p, editor, a, shown) {
					return
				}
			}
			if l.c.Agents.Over(ctx, run) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// quietly does what may fail without anybody being the worse for it.
func (l *line) quietly(what string, do func() error) {
	var err error
	defer func() {
		if err != nil {
			l.c.Logger.Debug("a channel", "channel", l.name, "what", what, "error", err)
		}
	}()
	defer caught(l, what, &err)
	err = do()
}

// showText sends or changes the message of a preview. It reports false when there is no
// more to show.
func (l *line) showText(ctx context.Context, run string, at Place, p *preview, e Editor, a Adapter, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	if l.shutFor(at) > 0 {
		return true // only what is shown is left out: the answer waits and comes
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	pieces := a.Render(l.c.Hide(text) + " …")
	item := previewItem(run)
	list, err := l.c.readPieces(ctx, item)
	if err != nil || len(pieces) == 0 {
		return false
	}
	out := Outgoing{Place: at, Key: pieceKey(item, 0), Piece: pieces[0]}
	if len(list) > 0 {
		if list[0].state != sent {
			return false // whether it is there nobody knows: the answer comes as a message of its own
		}
		l.quietly("edit", func() error {
			err := e.Edit(ctx, list[0].ref, out)
			l.shut(at, err)
			return err
		})
		return true
	}
	if l.mayGo(at.Chat) != nil {
		return true // as above
	}
	// The text itself is not kept: the row only says that there is a message.
	if _, err := l.c.keepPieces(ctx, item, []markup.Piece{{Text: "…"}}); err != nil {
		return false
	}
	if moved, err := l.c.movePiece(ctx, item, 0, waiting, sending, ""); err != nil || !moved {
		return false
	}
	ref, err := l.put(ctx, a, out)
	l.shut(at, err)
	to := sent
	switch {
	case err != nil && outbox.SurelyNotSent(err):
		to = waiting
		l.pace.Unsaid(at.Chat)
	case err != nil:
		return false
	}
	moved, failed := l.c.movePiece(context.WithoutCancel(ctx), item, 0, sending, to, ref)
	return err == nil && failed == nil && moved
}

// intoPreview makes the message of the turn's preview the first piece of its answer. It
// reports false if there is none.
func (l *line) intoPreview(ctx context.Context, a Adapter, it outbox.Item, out Outgoing) (ref string, done bool, err error) {
	e, ok := a.(Editor)
	if !ok || !strings.HasPrefix(it.Run, "run_") || it.Ordinal != 0 { // what a turn sends beside its answer is a message of its own
		return "", false, nil
	}
	l.mu.Lock()
	p := l.previews[it.Run]
	l.mu.Unlock()
	if p != nil {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
	}
	list, err := l.c.readPieces(ctx, previewItem(it.Run))
	if err != nil {
		return "", false, fault.New(fault.Unavailable, "the message of the preview: %w", err)
	}
	if len(list) == 0 || list[0].state != sent {
		return "", false, nil
	}
	defer caught(l, "editing", &err)
	switch err := e.Edit(ctx, list[0].ref, out); {
	case err == nil:
		return list[0].ref, true, nil
	case !outbox.SurelyNotSent(err):
		// An edit done twice is done once: doubt is no reason to stop.
		return "", false, fault.New(fault.Unavailable, "%w", err)
	case fault.Is(err, fault.Unavailable):
		return "", false, err
	}
	return "", false, nil // it was deleted, or cannot be changed any more: the answer comes as a message of its own
}
