package loops

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/trigger"
)

// Facts is the memory that is looked after.
type Facts interface {
	Sweep(ctx context.Context) (erased int, err error)
	List(ctx context.Context, agent string, limit int) ([]memory.Fact, error)
}

var _ Facts = (*memory.Memory)(nil)

// Bounds of upkeep.
const (
	keepLogs   = 14 * 24 * time.Hour
	maxAlike   = 1000 // facts that are compared, the newest
	maxMerges  = 5    // proposals of one run
	alikeShare = 0.7  // of their words that two facts have in common, from where on they say nearly the same
)

// MemoryUpkeep clears away what is over: facts, short memory, logs. With the setting
// merge=true it also has a model put facts that say nearly the same into one sentence, and
// proposes that to the operator.
func MemoryUpkeep(facts Facts) Loop {
	return Loop{
		Name: "memory-upkeep", Description: "clears away what is over in memory; with merge=true it proposes to merge facts that say nearly the same, which asks a model",
		On:       []trigger.On{{Schedule: &trigger.Schedule{When: "40 4 * * *"}}, {Manual: true}},
		Settings: map[string][]string{"merge": {"true", "false"}, "gateway_model": {"summary", "main"}},
		Run:      func(ctx context.Context, k *Kit) error { return upkeep(ctx, k, facts) },
	}
}

func upkeep(ctx context.Context, k *Kit, facts Facts) error {
	swept, err := k.Step(ctx, "sweep", func(ctx context.Context) (json.RawMessage, error) {
		erased, err := facts.Sweep(ctx)
		if err != nil {
			return nil, err
		}
		notes, lines, err := k.d.Forget(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(fmt.Sprintf("%d facts, %d entries of short memory and %d lines of logs were over", erased, notes, lines))
	})
	if err != nil {
		return err
	}
	var said string
	if err := json.Unmarshal(swept, &said); err != nil {
		return fault.New(fault.Verification, "what was swept: %w", err)
	}
	if err := k.Log(ctx, "swept", Info, said); err != nil || k.Config("merge") != "true" {
		return err
	}
	return merge(ctx, k, facts)
}

// pair is two facts that say nearly the same.
type pair struct{ A, B memory.Fact }

func (p pair) key() string { return p.A.ID + " " + p.B.ID }

// merge proposes one sentence for each pair that was not proposed before.
func merge(ctx context.Context, k *Kit, facts Facts) error {
	raw, err := k.Step(ctx, "alike", func(ctx context.Context) (json.RawMessage, error) {
		list, err := facts.List(ctx, k.who.Agent, maxAlike)
		if err != nil {
			return nil, err
		}
		return json.Marshal(alike(list)) //nolint:musttag // only this run reads it
	})
	if err != nil {
		return err
	}
	var pairs []pair
	if err := json.Unmarshal(raw, &pairs); err != nil { //nolint:musttag // the same
		return fault.New(fault.Verification, "facts that are alike: %w", err)
	}
	proposed := 0
	for _, p := range pairs {
		if proposed == maxMerges {
			return nil
		}
		_, before, err := k.ShortGet(ctx, "was "+p.key(), "proposed", p.key())
		if err != nil {
			return err
		}
		if before {
			continue
		}
		proposed++
		if err := mergePair(ctx, k, p); err != nil {
			return err
		}
	}
	return nil
}

func mergePair(ctx context.Context, k *Kit, p pair) error {
	k.saw(p.A.Label, p.A.Text)
	k.saw(p.B.Label, p.B.Text)
	one, err := k.Gateway(ctx, "merge "+p.key(),
		"These two remembered facts say nearly the same. Write one sentence that keeps all that is true in them, and nothing else.\n1. "+p.A.Text+"\n2. "+p.B.Text)
	if err != nil {
		return err
	}
	if err := k.ShortSet(ctx, "note "+p.key(), "proposed", p.key(), "1", 90*24*time.Hour); err != nil {
		return err
	}
	return k.Propose(ctx, "propose "+p.key(), "Merge two remembered facts", p.A.Text+" / "+p.B.Text,
		fmt.Sprintf("Forget the facts %s and %s, then remember this one: %s", p.A.ID, p.B.ID, strings.TrimSpace(one)))
}

// alike finds facts that say nearly the same, each with one other at most. Those that
// others brought are left alone: nothing they say takes the place of what the operator said.
func alike(list []memory.Fact) (out []pair) {
	words := make([]map[string]bool, len(list))
	for i, f := range list {
		words[i] = wordsOf(f.Text)
	}
	taken := map[int]bool{}
	for i := range list {
		for j := i + 1; j < len(list) && !taken[i]; j++ {
			if taken[j] || list[i].Label.Tainted() || list[j].Label.Tainted() || share(words[i], words[j]) < alikeShare {
				continue
			}
			taken[i], taken[j] = true, true
			out = append(out, pair{list[i], list[j]})
		}
	}
	return out
}

func wordsOf(text string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return strings.ContainsRune(" \t\n.,;:!?\"'()", r) }) {
		out[w] = true
	}
	return out
}

// share is how much of two sets of words is common to both, from 0 to 1.
func share(a, b map[string]bool) float64 {
	common := 0
	for w := range a {
		if b[w] {
			common++
		}
	}
	all := len(a) + len(b) - common
	if all == 0 {
		return 0
	}
	return float64(common) / float64(all)
}
