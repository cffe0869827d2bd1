package redact

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Handler hands records on to h without the values, in the message and in every
// attribute. What an attribute is made of does not matter: it is looked at as h would
// write it, and replaced by text if there is a value in it.
func (r *Redactor) Handler(h slog.Handler) slog.Handler { return &handler{r, h} }

type handler struct {
	r *Redactor
	h slog.Handler
}

func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.h.Enabled(ctx, l) }

func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	if h.r.matcher() == nil {
		return h.h.Handle(ctx, rec)
	}
	out := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.r.attr(a))
		return true
	})
	return h.h.Handle(ctx, out)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.r.attr(a)
	}
	return &handler{h.r, h.h.WithAttrs(clean)}
}

func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.r, h.h.WithGroup(name)} }

func (r *Redactor) attr(a slog.Attr) slog.Attr {
	a.Key, a.Value = r.String(a.Key), a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(r.String(a.Value.String()))
	case slog.KindGroup:
		group := a.Value.Group()
		clean := make([]slog.Attr, len(group))
		for i, g := range group {
			clean[i] = r.attr(g)
		}
		a.Value = slog.GroupValue(clean...)
	case slog.KindAny:
		a.Value = r.other(a.Value)
	default: // numbers, times: looked at too, since a value may be digits only
		if text := a.Value.String(); r.String(text) != text {
			a.Value = slog.StringValue(r.String(text))
		}
	}
	return a
}

// other is a value that its handler turns into text in a way of its own.
func (r *Redactor) other(v slog.Value) slog.Value {
	if err, ok := v.Any().(error); ok {
		if text := err.Error(); r.String(text) != text {
			return slog.StringValue(r.String(text))
		}
		return v
	}
	text := fmt.Sprintf("%+v", v.Any())
	raw, err := json.Marshal(v.Any())
	if err == nil && r.Find(raw) != "" || r.Find([]byte(text)) != "" {
		return slog.StringValue(r.String(text))
	}
	if b, ok := v.Any().([]byte); ok && r.Find(b) != "" {
		return slog.StringValue(r.String(string(b)))
	}
	return v
}
