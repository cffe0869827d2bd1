package harness

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden records; read each against the facts before you believe it")

// recording is one run of a real program.
type recording struct {
	name    string // "claude/plain-stream"
	adapter Adapter
	stdout  []byte
	exit    Exit
}

// killedByOwner are the recordings whose program hid that it was ended.
func killedByOwner(name string) bool { return name == "gemini/no-relaunch-sigterm" }

func recordings(t testing.TB) []recording {
	t.Helper()
	var all []recording
	for _, a := range Adapters() {
		files, err := filepath.Glob(filepath.Join("testdata", string(a.Name), "*.stdout"))
		if err != nil || len(files) == 0 {
			t.Fatalf("recordings of %s: %v, %v", a.Name, files, err)
		}
		for _, file := range files {
			all = append(all, read(t, a, strings.TrimSuffix(file, ".stdout")))
		}
	}
	return all
}

func read(t testing.TB, a Adapter, base string) recording {
	t.Helper()
	stdout, err := os.ReadFile(base + ".stdout")
	if err != nil {
		t.Fatal(err)
	}
	name := string(a.Name) + "/" + filepath.Base(base)
	exit := exitOf(t, base+".exit")
	exit.Killed = killedByOwner(name)
	if stderr, err := os.ReadFile(base + ".stderr"); err == nil {
		exit.Stderr = string(stderr)
	}
	return recording{name, a, stdout, exit}
}

// exitOf reads "0", "143 (signal 15)" and "137 (SIGKILL by the lab: …)".
func exitOf(t testing.TB, file string) Exit {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code, note, _ := strings.Cut(strings.TrimSpace(string(raw)), " ")
	var e Exit
	if e.Code, err = strconv.Atoi(code); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	switch {
	case strings.Contains(note, "SIGKILL"):
		e.Signal = 9
	case note != "":
		if _, err := fmt.Sscanf(note, "(signal %d)", &e.Signal); err != nil {
			t.Fatalf("%s: %q: %v", file, note, err)
		}
	}
	return e
}

func (r recording) record() Record {
	d := r.adapter.Decoder("")
	_, _ = d.Write(r.stdout)
	return d.Close(r.exit)
}

// golden is the record as it is kept: what a person reads in it stays readable.
func golden(t testing.TB, r Record) []byte {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEveryRecordingGivesItsRecord(t *testing.T) {
	t.Parallel()
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			got := golden(t, r.record())
			file := filepath.Join("testdata", r.name+".golden.json")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("record changed:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// The outcomes a caller acts on, by hand: a golden file that was refreshed
// without being read does not hide a wrong one.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome Outcome
		reason  string
		status  int
		retries int
	}{
		{"claude/plain-stream", Completed, "completed", 0, 0},
		{"claude/plain-json", Completed, "completed", 0, 0},
		{"claude/api-401-stream", Auth, "api_error", 401, 1},
		{"claude/api-429x2-stream", Completed, "completed", 0, 2},
		{"claude/api-529-forever", Unavailable, "api_error", 529, 2},
		{"claude/unreachable", Unavailable, "api_error", 0, 2},
		{"claude/cut-midstream", Completed, "completed", 0, 1}, // it falls back by itself
		{"claude/hang-30s", Completed, "completed", 0, 0},
		{"claude/sigterm-midstream", Killed, "", 0, 0},
		{"claude/sigint-midstream", Interrupted, "aborted_streaming", 0, 0},
		{"claude/bidi-interrupt", Interrupted, "aborted_streaming", 0, 0},
		{"claude/denied-write-default-stream", Completed, "completed", 0, 0}, // told by Permissions
		{"claude/resume-unknown", NotStarted, "", 0, 0},
		{"claude/no-key", Auth, "api_error", 0, 0},
		{"claude/max-budget", Limit, "budget_exhausted", 0, 0},
		{"claude/max-turns-1", Limit, "max_turns", 0, 0},
		{"claude/plain-text", Protocol, "", 0, 0},
		{"claude/auth-status-json", Protocol, "", 0, 0},

		{"codex/plain-json", Completed, "turn.completed", 0, 0},
		{"codex/api-401-json", Auth, "turn.failed", 401, 2},
		{"codex/api-429x2", Completed, "turn.completed", 0, 2},
		{"codex/cut-midstream", Unavailable, "turn.failed", 0, 2},
		{"codex/unreachable", Killed, "", 0, 7},
		{"codex/sigterm-midstream", Killed, "", 0, 0},
		{"codex/no-key", Auth, "turn.failed", 0, 0},
		{"codex/not-a-git-repo", NotStarted, "", 0, 0},
		{"codex/resume-unknown", NotStarted, "", 0, 0},
		{"codex/app-server-accept", Completed, "completed", 0, 0},
		{"codex/app-server-decline", Completed, "completed", 0, 0},
		{"codex/app-server-interrupt", Interrupted, "interrupted", 0, 0},

		{"gemini/plain-stream", Completed, "success", 0, 0},
		{"gemini/api-401-stream", Auth, "unknown", 401, 0},
		{"gemini/api-429x2-stream", Completed, "success", 0, 0}, // retried silently
		{"gemini/cut-midstream", Unavailable, "unknown", 0, 0},
		{"gemini/unreachable", Killed, "", 0, 0},
		{"gemini/no-relaunch-sigterm", Killed, "", 0, 0}, // exit 0
		{"gemini/no-key", Auth, "exit 41", 0, 0},
		{"gemini/resume-unknown", NotStarted, "exit 42", 0, 0},
		{"gemini/acp-cancel", Interrupted, "cancelled", 0, 0},
		{"gemini/acp-plain", Completed, "end_turn", 0, 0},

		{"opencode/plain-json", Completed, "stop", 0, 0},
		{"opencode/api-401-json", Auth, "APIError", 401, 0},
		{"opencode/api-429x2", Completed, "stop", 0, 0},
		{"opencode/cut-midstream", Killed, "", 0, 0},
		{"opencode/unreachable", Killed, "", 0, 0},
		{"opencode/sigterm-midstream", Killed, "", 0, 0},
		{"opencode/denied-write-ask", Denied, "tool-calls", 0, 0}, // exit 0
		{"opencode/denied-write-deny", Completed, "stop", 0, 0},
		{"opencode/resume-unknown", NotStarted, "", 0, 0},
		{"opencode/acp-write-reject", Denied, "end_turn", 0, 0},

		{"pi/plain-json", Completed, "stop", 0, 0},
		{"pi/api-401-json", Auth, "error", 401, 0},       // exit 0
		{"pi/cut-midstream", Unavailable, "error", 0, 3}, // exit 0
		{"pi/unreachable", Unavailable, "error", 0, 3},   // exit 0
		{"pi/sigterm-midstream", Killed, "", 0, 0},
		{"pi/no-key", NotStarted, "", 0, 0}, // only stderr says why
		{"pi/resume-unknown", NotStarted, "", 0, 0},
		{"pi/rpc-abort", Interrupted, "aborted", 0, 0},
		{"pi/rpc-session", Completed, "stop", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cli, _, _ := strings.Cut(c.name, "/")
			a, err := ByName(Name(cli))
			if err != nil {
				t.Fatal(err)
			}
			r := read(t, a, filepath.Join("testdata", c.name)).record()
			if r.Outcome != c.outcome || r.Reason != c.reason || r.Status != c.status || r.Retries != c.retries {
				t.Errorf("%s %q status %d retries %d, want %+v", r.Outcome, r.Reason, r.Status, r.Retries, c)
			}
			switch r.Outcome {
			case Auth, Unavailable, Limit, NotStarted:
				if r.Error == "" {
					t.Errorf("%s says nothing", r.Outcome)
				}
			case Completed:
				if r.Error != "" {
					t.Errorf("%s with error %q", r.Outcome, r.Error)
				}
			}
		})
	}
}

// The fake API answers every request with 100 tokens in, 20 from a cache, 10
// into it and 7 out.
func TestTokensAndMoney(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		usage Usage
		cost  Cost
	}{
		{"claude/plain-stream", Usage{Known: true, Input: 100, CacheRead: 20, CacheWrite: 10, Output: 7}, Cost{true, true, 594}},
		{"claude/resume-fork", Usage{Known: true, Input: 100, CacheRead: 20, CacheWrite: 10, Output: 7}, Cost{true, true, 1782}},
		{"claude/bidi-permission-deny", Usage{Known: true, Input: 400, CacheRead: 80, CacheWrite: 40, Output: 28}, Cost{true, true, 2376}},
		{"claude/max-budget", Usage{Known: true, Partial: true}, Cost{true, true, 594}},
		{"codex/tool-read-json", Usage{Known: true, Cumulative: true, Input: 160, CacheRead: 40, Output: 14}, Cost{}},
		{"codex/resume", Usage{Known: true, Cumulative: true, Input: 240, CacheRead: 60, Output: 21}, Cost{}},
		{"codex/app-server-accept", Usage{Known: true, Cumulative: true, Input: 160, CacheRead: 40, Output: 14}, Cost{}},
		{"gemini/tool-read-stream", Usage{Known: true, Input: 160, CacheRead: 40, Output: 14}, Cost{}},
		{"opencode/tool-read-json", Usage{Known: true, Input: 200, CacheRead: 40, CacheWrite: 20, Output: 14}, Cost{true, false, 897}},
		{"pi/tool-read-json", Usage{Known: true, Input: 200, CacheRead: 40, CacheWrite: 20, Output: 14}, Cost{true, false, 897}},
		{"pi/plain-json", Usage{Known: true, Input: 100, CacheRead: 20, CacheWrite: 10, Output: 7}, Cost{true, false, 449}},
		{"codex/unreachable", Usage{}, Cost{}},
	} {
		cli, _, _ := strings.Cut(c.name, "/")
		a, err := ByName(Name(cli))
		if err != nil {
			t.Fatal(err)
		}
		r := read(t, a, filepath.Join("testdata", c.name)).record()
		if r.Usage != c.usage || r.Cost != c.cost {
			t.Errorf("%s: %+v %+v, want %+v %+v", c.name, r.Usage, r.Cost, c.usage, c.cost)
		}
	}
}

func TestPiecesDoNotChangeTheRecord(t *testing.T) {
	t.Parallel()
	all := recordings(t)
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(all).Draw(t, "recording")
		stdout := r.stdout
		if at := rapid.IntRange(0, len(stdout)).Draw(t, "cut at"); rapid.Bool().Draw(t, "is cut") {
			stdout = stdout[:at]
		}
		whole := r.adapter.Decoder("")
		_, _ = whole.Write(stdout)
		pieces := r.adapter.Decoder("")
		for rest := stdout; len(rest) > 0; {
			n := min(rapid.IntRange(1, 3000).Draw(t, "piece"), len(rest))
			_, _ = pieces.Write(rest[:n])
			rest = rest[n:]
		}
		if got, want := pieces.Close(r.exit), whole.Close(r.exit); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s in pieces: %+v, whole: %+v", r.name, got, want)
		}
	})
}
