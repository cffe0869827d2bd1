package child

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
)

// sink is a standard input that keeps what it is given.
type sink struct{ bytes.Buffer }

func (*sink) Close() error { return nil }

// FuzzTalk gives every talker what a program may print. Whatever it is, nothing
// panics, every line of ours is whole JSON, and nothing is allowed that nobody allowed.
func FuzzTalk(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.io"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var said [][]byte
		for line := range bytes.Lines(raw) {
			if _, text, is := bytes.Cut(bytes.TrimSpace(line), []byte(" < ")); is && len(text) < 4<<10 {
				said = append(said, text)
			}
		}
		f.Add(bytes.Join(said, []byte("\n")))
	}
	f.Add([]byte(`{"id":{"a":1},"method":"session/request_permission","params":{"options":[{"optionId":"x","kind":"allow_always"}]}}`))
	f.Add([]byte(`{"id":1,"method":"item/fileChange/requestApproval","params":7}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		for _, cli := range []harness.Name{harness.Claude, harness.Codex, harness.ACP} {
			in := &sink{}
			ctx, cancel := context.WithCancel(t.Context())
			task := &Task{CLI: cli, Prompt: "hi", Dir: "/d", Write: true, Permit: func(context.Context, Ask) Answer { return Answer{} }}
			v := newVigil(0, 0)
			d := &dialogue{task: task, out: newOutbox(in), asks: newAsks(ctx, task, v), over: func() {}}
			var talk talker = &claudeTalk{dialogue: d}
			switch cli {
			case harness.Codex:
				talk = &codexTalk{dialogue: d}
			case harness.ACP:
				talk = newACP(d, nil)
			}
			talk.begin()
			for line := range bytes.Lines(said) {
				talk.line(bytes.TrimSpace(line))
			}
			talk.interrupt()
			d.asks.wait()
			cancel()
			d.out.stop()
			r := harness.Record{Outcome: harness.Cut}
			talk.amend(&r)
			for line := range bytes.Lines(in.Bytes()) {
				if !json.Valid(line) {
					t.Fatalf("we said %q", line)
				}
				if bytes.Contains(line, []byte(`"behavior":"allow"`)) || bytes.Contains(line, []byte(`"decision":"accept"`)) {
					t.Fatalf("we allowed %s", line)
				}
			}
		}
	})
}

func TestAnOptionIsChosenByItsKind(t *testing.T) {
	t.Parallel()
	once, always := acpOption{"1", "allow_once"}, acpOption{"2", "allow_always"}
	no, never := acpOption{"3", "reject_once"}, acpOption{"4", "reject_always"}
	for _, c := range []struct {
		options []acpOption
		allow   bool
		want    acpChoice
	}{
		{[]acpOption{always, once, no}, true, acpChoice{"selected", "1"}},
		{[]acpOption{always, once, never, no}, false, acpChoice{"selected", "3"}},
		{[]acpOption{always, never}, false, acpChoice{"selected", "4"}},
		{[]acpOption{always, no}, true, acpChoice{"selected", "3"}}, // leave for ever is not given
		{[]acpOption{always}, true, acpChoice{Outcome: "cancelled"}},
		{nil, false, acpChoice{Outcome: "cancelled"}},
	} {
		if got := choose(c.options, c.allow); got != c.want {
			t.Errorf("%+v %v: %+v, want %+v", c.options, c.allow, got, c.want)
		}
	}
}

func TestWhatARefusedRequestMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e      rpcError
		before bool
		want   harness.Outcome
		status int
	}{
		{rpcError{Code: -32000, Message: "Authentication required"}, true, harness.Auth, 0},
		{rpcError{Code: -32603, Message: "Internal error", Data: []byte(`{"details":"status 401"}`)}, false, harness.Auth, 401},
		{rpcError{Code: 429, Message: "slow down"}, false, harness.Unavailable, 429},
		{rpcError{Code: -32603, Message: "API Error: 529 overloaded"}, false, harness.Unavailable, 529},
		{rpcError{Code: -32602, Message: "prompt is too long (status 400)"}, false, harness.Rejected, 400},
		{rpcError{Code: -32603, Message: "something"}, false, harness.Failed, 0},
		{rpcError{Code: -32603, Message: "no rollout found"}, true, harness.NotStarted, 0},
	} {
		r := harness.Record{Outcome: harness.Cut}
		if failed(&r, &c.e, c.before); r.Outcome != c.want || r.Status != c.status || !strings.HasPrefix(r.Error, c.e.Message) {
			t.Errorf("%+v: %s %d %q", c.e, r.Outcome, r.Status, r.Error)
		}
	}
	r := harness.Record{Outcome: harness.Completed}
	if failed(&r, &rpcError{}, false); r.Outcome != harness.Completed {
		t.Error("a run that is complete is no other")
	}
}
