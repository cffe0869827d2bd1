package eventlog

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// What memory answers is what the store would, or it does not answer.
func TestRecentAnswersLikeTheWholeLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r recent
		var all []Event
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"ours", "ours", "ours", "theirs", "erase"}).Draw(t, "what") {
			case "erase":
				r.forget()
			case "theirs":
				all = append(all, Event{Position: int64(len(all) + 1), Kind: "b"})
			default:
				size := rapid.SampledFrom([]int{0, 1, recentBytes / 3}).Draw(t, "size")
				e := Event{Position: int64(len(all) + 1), Kind: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "kind"), Data: make([]byte, size)}
				all = append(all, e)
				r.add([]Event{e})
			}
		}
		after := rapid.Int64Range(0, int64(len(all))).Draw(t, "after")
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		f := Filter{Kinds: rapid.SampledFrom([][]string{nil, {"a"}, {"c"}}).Draw(t, "kinds")}
		got, upTo, top, ok := r.after(after, limit, f)
		if r.bytes > recentBytes {
			t.Fatalf("%d bytes", r.bytes)
		}
		if !ok {
			return
		}
		var want []int64
		for _, e := range all[after:upTo] {
			if f.Match(e) {
				want = append(want, e.Position)
			}
		}
		var have []int64
		for _, it := range got {
			have = append(have, it.Position)
		}
		if !slices.Equal(have, want) || upTo <= after || upTo > top || top > int64(len(all)) || len(got) < limit && upTo != top || len(got) > limit {
			t.Fatalf("after %d: %v up to %d of %d, want %v", after, have, upTo, top, want)
		}
	})
}

func TestErasedPayloadIsNotKeptInMemory(t *testing.T) {
	t.Parallel()
	l := newLog(t, dbtest.SQLite(t))
	must(t, l, New{ID: "1", Stream: "s", Kind: "k", Expect: Any, Data: strings.Repeat("x", 100)}, ev("2", "s"))
	if _, _, _, ok := l.recent.after(0, 1, Filter{}); !ok {
		t.Fatal("not in memory")
	}
	if err := l.Erase(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	items, _, _, err := l.next(t.Context(), 0, Filter{})
	if err != nil || len(items) != 2 || !items[0].Erased || items[0].Data != nil {
		t.Errorf("%+v, %v", items, err)
	}
}
