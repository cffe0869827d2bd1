package wasmloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// durableKit is a kit with a record, of which a run can be done again.
type durableKit struct {
	*fakeKit
	steps  map[string]json.RawMessage
	awake  bool
	logged []string
}

func (k *durableKit) StepBegin(_ context.Context, name string, _ bool) (json.RawMessage, bool, error) {
	r, done := k.steps[name]
	return r, done, k.note("begin %s", name)
}

func (k *durableKit) StepEnd(_ context.Context, name string, result json.RawMessage) error {
	k.steps[name] = append(json.RawMessage{}, result...)
	return nil
}

func (k *durableKit) Sleep(_ context.Context, d time.Duration) error {
	if !k.awake {
		return fmt.Errorf("%w: asleep for %s", ErrStop, d)
	}
	return nil
}

func (k *durableKit) After(_ context.Context, id string, d time.Duration, payload json.RawMessage) error {
	return k.note("after %s %s %s", id, d, payload)
}
func (k *durableKit) CancelAfter(context.Context, string) error { return nil }
func (k *durableKit) WaitSignal(context.Context, string, time.Duration) (json.RawMessage, error) {
	return nil, nil
}
func (k *durableKit) Fence(text, from string) string { return "<" + from + ">" + text }
func (k *durableKit) Log(_ context.Context, level, text string, fields map[string]string) {
	k.logged = append(k.logged, level+" "+text+" "+fields["kind"])
}
func (k *durableKit) Progress(_ context.Context, text string, done, total int) {
	k.logged = append(k.logged, fmt.Sprintf("%s %d/%d", text, done, total))
}

var _ DurableKit = (*durableKit)(nil)

// A run that sleeps is put away and done again from its beginning: what it did is
// answered from the record, and its own randomness is what it was.
func TestARunOfOurOwnGuestIsPutAwayAndGoesOn(t *testing.T) {
	t.Parallel()
	module := built(t, "own")
	k := &durableKit{fakeKit: &fakeKit{answer: strings.Repeat("a", 100_000)}, steps: map[string]json.RawMessage{}}
	record := map[int]string{}
	b := guestOf(t, module, func(m *Manifest, o *Options) {
		m.Provides = []ToolSpec{{Name: "double"}}
		o.Kit = k
		o.Around = func(ctx context.Context, c Call, do func(context.Context, []byte) ([]byte, error)) ([]byte, error) {
			if got, there := record[c.N]; there && c.Name == FnAsk {
				return []byte(got), nil
			}
			got, err := do(ctx, c.Request)
			record[c.N] = string(got)
			return got, err
		}
	})
	if err := b.RunTriggered(t.Context(), time.Minute, "event", nil); !errors.Is(err, ErrStop) || errors.Is(err, ErrTrapped) {
		t.Fatal(err)
	}
	first := k.take()
	if first != "begin token; ask p" {
		t.Errorf("it did %q", first)
	}
	k.awake = true
	if err := b.RunTriggered(t.Context(), time.Minute, "event", nil); err != nil {
		t.Fatal(err, b.said.take())
	}
	token := strings.Trim(string(k.steps["token"]), `"`)
	if did := k.take(); did != `begin token; notify answer 100000; after again 1h0m0s {"token":"`+token+`"}` {
		t.Errorf("it did %q", did)
	}
	want := []string{"info token " + token + " event", "asked 1/2"}
	want = append(want, want...)
	if len(k.logged) != 5 || strings.Join(k.logged[:4], "|") != strings.Join(want, "|") || !strings.Contains(k.logged[4], "does not name the tool shell.exec") {
		t.Errorf("logged %q", k.logged)
	}
	for input, want := range map[int]string{21: `{"twice":42}`, -1: `{"error":"too small"}`} {
		if got, err := b.InvokeTool(t.Context(), "double", map[string]any{"N": input}, time.Minute); err != nil || got != want {
			t.Errorf("%q %v", got, err)
		}
	}
}

// Without a host that keeps a record these calls are refused, and say so.
func TestAHostWithoutARecordRefusesSteps(t *testing.T) {
	t.Parallel()
	b := guestOf(t, built(t, "own"), func(m *Manifest, _ *Options) { m.Provides = nil })
	err := b.Run(t.Context(), time.Minute)
	if said := strings.Join(b.said.take(), " "); !errors.Is(err, ErrTrapped) || !strings.Contains(said, "keeps no record") {
		t.Errorf("%v: %q", err, said)
	}
}
