package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

func offer(name string, h Handler) Offer { return Offer{define(name, readSchema), h} }

func TestReplaceSwapsTheToolsOfOneOwnerAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	if err := r.Add(define("fs.read", readSchema), echo); err != nil {
		t.Fatal(err)
	}
	bad, err := r.Replace("w", []Offer{
		offer("w.one", echo), offer("w.two", echo), offer("w.one", echo), offer("fs.read", echo),
		{define("w.bad", `{"type":"string"}`), echo},
	}, Quarantine{"w.wide", "asks for more than it may"})
	if err != nil || len(bad) != 4 {
		t.Fatalf("%v, %v", bad, err)
	}
	for i, want := range []Quarantine{{"w.wide", "asks for more"}, {"w.one", "taken by w.one"}, {"fs.read", "taken by fs.read"}, {"w.bad", "root has type string"}} {
		if bad[i].Name != want.Name || !strings.Contains(bad[i].Reason, want.Reason) {
			t.Errorf("quarantined %v, want %v", bad[i], want)
		}
	}
	if _, err := r.Get("w_two"); err != nil {
		t.Error(err)
	}
	old := r.Digest("w.two")
	changed := offer("w.two", echo)
	changed.Definition.Revision = "another program"
	if bad, err := r.Replace("w", []Offer{changed}); err != nil || len(bad) > 0 {
		t.Fatalf("%v, %v", bad, err)
	}
	if _, err := r.Get("w.one"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a tool that was taken away: %v", err)
	}
	if r.Digest("w.two") == old || len(r.Quarantined()) != 0 {
		t.Errorf("digest %s, quarantined %v", r.Digest("w.two"), r.Quarantined())
	}
	_, err = inv.Call(t.Context(), "w.two", Invocation{Input: json.RawMessage(`{}`), Digest: old})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a call that was decided by another definition: %v", err)
	}
	if _, err := inv.Call(t.Context(), "w.two", Invocation{Input: json.RawMessage(`{}`), Digest: r.Digest("w.two")}); err != nil {
		t.Error(err)
	}
	if _, err := r.Replace("w", nil); err != nil {
		t.Fatal(err)
	}
	if list := r.List(); len(list) != 1 || list[0].Name != "fs.read" {
		t.Errorf("%v", list)
	}
	if _, err := r.Replace("", nil); err == nil {
		t.Error("the tools of ombud itself were replaced")
	}
}

// A reader sees all of one generation or all of another, and no call reaches a
// handler it was not decided for.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	generation := func(g int) (offers []Offer) {
		for i := range 5 {
			o := offer(fmt.Sprintf("w.t%d", i), func(context.Context, Invocation) (Output, error) { return Output{Text: fmt.Sprint(g)}, nil })
			o.Definition.Revision = fmt.Sprint(g)
			offers = append(offers, o)
		}
		return offers
	}
	digests := map[string]string{}
	for g := range 2 {
		if _, err := r.Replace("w", generation(g)); err != nil {
			t.Fatal(err)
		}
		digests[r.Digest("w.t3")] = fmt.Sprint(g)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				seen := map[string]bool{}
				for _, d := range r.List() {
					seen[d.Revision] = true
				}
				if len(seen) != 1 {
					t.Errorf("a mixture: %v", seen)
				}
				digest := r.Digest("w.t3")
				out, err := inv.Call(t.Context(), "w.t3", Invocation{Input: json.RawMessage(`{}`), Digest: digest})
				if err != nil && !fault.Is(err, fault.Conflict) || err == nil && out.Text != digests[digest] {
					t.Errorf("decided by %s, answered %q, %v", digests[digest], out.Text, err)
				}
			}
		})
	}
	for i := range 200 {
		if _, err := r.Replace("w", generation(i%2)); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}
