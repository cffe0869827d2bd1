package channel

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/outbox"
)

// pressed takes the buttons away from a question that was decided by one of them. It is for
// the eye alone: a press that comes all the same is told that it is too late.
func (l *line) pressed(m Received) {
	a, err := l.ready()
	e, ok := a.(Editor)
	if err != nil || !ok || m.Press.Ref == "" {
		return
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.run == nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.c.run, 10*time.Second)
	l.c.going.Go(func() {
		defer cancel()
		l.quietly("taking buttons away", func() error { return l.unbutton(ctx, e, m) })
	})
}

func (l *line) unbutton(ctx context.Context, e Editor, m Received) error {
	items, err := l.c.Outbox.List(ctx, outbox.Filter{Run: m.Press.Approval, Channel: l.name, Limit: 10})
	if err != nil {
		return err
	}
	for _, it := range items {
		list, err := l.c.readPieces(ctx, it.ID)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.ref == m.Press.Ref && p.state == sent {
				return e.Edit(ctx, p.ref, Outgoing{Place: Place{Chat: m.Chat, Thread: m.Thread}, Key: pieceKey(it.ID, p.n), Piece: p.body})
			}
		}
	}
	return nil
}
