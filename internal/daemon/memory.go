package daemon

import (
	"context"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/wire"
)

func (d *Daemon) memoryList(ctx context.Context, req wire.MemoryListRequest) (wire.MemoryResult, error) {
	limit := req.Limit
	if limit <= 0 {
		limit = 100
	}
	facts, err := d.memory.Page(ctx, agent.Default, req.Before, limit)
	var out wire.MemoryResult
	for _, f := range facts {
		out.Facts = append(out.Facts, wireFact(f, 0))
	}
	return out, err
}

func (d *Daemon) memorySearch(ctx context.Context, req wire.MemorySearchRequest) (wire.MemoryResult, error) {
	limit := req.Limit
	if limit <= 0 {
		limit = 10
	}
	found, err := d.memory.Recall(ctx, agent.Default, req.Query, limit)
	var out wire.MemoryResult
	if found.Warming {
		out.Index = "warming"
	}
	for _, h := range found.Hits {
		out.Facts = append(out.Facts, wireFact(h.Fact, h.Score))
	}
	return out, err
}

func wireFact(f memory.Fact, score float64) wire.MemoryFact {
	out := wire.MemoryFact{
		ID: f.ID, Text: f.Text, Kind: "fact", Cause: f.Origin.Event, Importance: f.Importance, Pinned: f.Pinned, Version: f.Version,
		At: f.Created, ExpiresAt: f.Expires, Score: score, Source: f.Label.String(),
	}
	if out.Cause == "" {
		out.Cause = f.Origin.Run
	}
	return out
}
