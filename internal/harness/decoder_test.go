package harness

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
)

// decode gives the record of lines.
func decode(t testing.TB, name Name, exit Exit, stdout string) Record {
	t.Helper()
	a, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	d := a.Decoder("")
	if n, err := d.Write([]byte(stdout)); n != len(stdout) || err != nil {
		t.Fatalf("took %d of %d, %v", n, len(stdout), err)
	}
	return d.Close(exit)
}

func warned(r Record, kind WarningKind) int {
	n := 0
	for _, w := range r.Warnings {
		if w.Kind == kind {
			n += w.Count
		}
	}
	return n
}

const codexDone = `{"type":"turn.started"}
{"type":"item.completed","item":{"id":"a","type":"agent_message","text":"done"}}
{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":1}}
`

func TestALineBeyondTheBoundIsDroppedAndTheStreamGoesOn(t *testing.T) {
	t.Parallel()
	a, err := ByName(Codex)
	if err != nil {
		t.Fatal(err)
	}
	d := a.Decoder("")
	piece := []byte(strings.Repeat("x", 1<<20))
	for range MaxLine>>20 + 8 {
		_, _ = d.Write(piece)
		if cap(d.half) > 2*MaxLine {
			t.Fatalf("keeps %d bytes", cap(d.half))
		}
	}
	_, _ = d.Write([]byte("\n" + codexDone))
	if r := d.Close(Exit{}); r.Outcome != Completed || r.Text != "done" || warned(r, WarnLongLine) != 1 || warned(r, WarnNotJSON) != 0 {
		t.Errorf("%+v", r)
	}

	// The same line whole, and one that is just within the bound.
	long := `{"type":"` + strings.Repeat("y", MaxLine-11) + `"}`
	r := decode(t, Codex, Exit{}, long+"\n"+long+"z\n"+codexDone)
	if r.Outcome != Completed || warned(r, WarnUnknown) != 1 || warned(r, WarnLongLine) != 1 {
		t.Errorf("%s, warnings %d %d", r.Outcome, warned(r, WarnUnknown), warned(r, WarnLongLine))
	}
}

func TestAResultOf300KBInOneLineIsRead(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("B", 300<<10)
	r := decode(t, Codex, Exit{}, `{"type":"item.completed","item":{"id":"m","type":"mcp_tool_call","server":"lab","tool":"big","arguments":{},`+
		`"result":{"content":[{"type":"text","text":"`+big+`"}]},"status":"completed"}}`+"\n"+codexDone)
	if len(r.Tools) != 1 || r.Tools[0].Outcome != ToolOK || len(r.Tools[0].Output) != maxOutput || warned(r, WarnCut) != 1 {
		t.Errorf("%d tools, warnings %+v", len(r.Tools), r.Warnings)
	}
}

func TestOddLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stdout  string
		outcome Outcome
		text    string
		kind    WarningKind
		count   int
	}{
		"windows ends":       {strings.ReplaceAll(codexDone, "\n", "\r\n"), Completed, "done", "", 0},
		"empty lines":        {"\n\n" + codexDone + "\n", Completed, "done", "", 0},
		"last without end":   {strings.TrimSuffix(codexDone, "\n"), Completed, "done", WarnHalfLine, 1},
		"half a last line":   {strings.TrimSuffix(codexDone, "}}\n"), Cut, "done", WarnHalfLine, 1},
		"a banner":           {"Welcome!\n[1]\nnull\n" + codexDone, Completed, "done", WarnNotJSON, 3},
		"unknown records":    {"{\"type\":\"new\"}\n{\"type\":\"new\"}\n{}\n" + codexDone, Completed, "done", WarnUnknown, 3},
		"a text for a count": {strings.Replace(codexDone, `"input_tokens":5`, `"input_tokens":"many"`, 1), Completed, "done", "", 0},
		"a list for a text":  {strings.Replace(codexDone, `"text":"done"`, `"text":["done"]`, 1), Completed, "", WarnOddShape, 1},
		"invalid utf-8":      {strings.Replace(codexDone, "done", "d\xffne", 1), Completed, "d\uFFFDne", "", 0},
		"deep":               {strings.Repeat(`{"a":`, 20000) + strings.Repeat("}", 20000) + "\n" + codexDone, Completed, "done", WarnNotJSON, 1},
		"line separator":     {strings.Replace(codexDone, "done", "d\u2028ne", 1), Completed, "d\u2028ne", "", 0},
		"keys in any order":  {`{"usage":{},"type":"turn.completed"}` + "\n", Completed, "", "", 0},
	} {
		r := decode(t, Codex, Exit{}, c.stdout)
		if r.Outcome != c.outcome || r.Text != c.text || (c.kind != "" && warned(r, c.kind) != c.count) || (c.kind == "" && len(r.Warnings) > 0) {
			t.Errorf("%s: %s %q %+v", name, r.Outcome, r.Text, r.Warnings)
		}
	}
}

// A process that goes on after a closing record has not closed yet.
func TestALaterTurnDecides(t *testing.T) {
	t.Parallel()
	const (
		claudeTurn = `{"type":"system","subtype":"init","session_id":"s"}` + "\n"
		claudeOK   = `{"type":"result","subtype":"success","is_error":false,"result":"ok","num_turns":1}` + "\n"
		piTry      = `{"type":"agent_start"}` + "\n"
		piBad      = `{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"terminated"}}` + "\n" + `{"type":"agent_end"}` + "\n"
		piOK       = `{"type":"message_end","message":{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"ok"}]}}` + "\n" + `{"type":"agent_end"}` + "\n"
		piAgain    = `{"type":"auto_retry_start","attempt":1}` + "\n"
		step       = `{"type":"step_start","sessionID":"s"}` + "\n"
		stepOK     = `{"type":"step_finish","part":{"reason":"stop"}}` + "\n"
	)
	for name, c := range map[string]struct {
		cli     Name
		stdout  string
		exit    Exit
		outcome Outcome
	}{
		"claude ended in its second turn":   {Claude, claudeTurn + claudeOK + claudeTurn, Exit{}, Cut},
		"claude killed in its second turn":  {Claude, claudeTurn + claudeOK + claudeTurn, Exit{Signal: 9}, Killed},
		"claude killed after its answer":    {Claude, claudeTurn + claudeOK, Exit{Signal: 15}, Completed},
		"codex ended in its second turn":    {Codex, codexDone + `{"type":"turn.started"}` + "\n", Exit{Code: 1}, Cut},
		"pi did well in its second try":     {Pi, piTry + piBad + piAgain + piTry + piOK, Exit{}, Completed},
		"pi ended before its second try":    {Pi, piTry + piBad + piAgain, Exit{}, Cut},
		"pi gave up":                        {Pi, piTry + piBad, Exit{}, Unavailable},
		"opencode says stop and exits 1":    {OpenCode, step + stepOK, Exit{Code: 1}, Failed},
		"opencode says stop and is killed":  {OpenCode, step + stepOK, Exit{Signal: 15}, Killed},
		"opencode says stop and begins one": {OpenCode, step + stepOK + step, Exit{}, Cut},
	} {
		if r := decode(t, c.cli, c.exit, c.stdout); r.Outcome != c.outcome {
			t.Errorf("%s: %s, want %s", name, r.Outcome, c.outcome)
		}
	}
}

// Sentences of the facts that no recording holds.
func TestErrorsNotRecorded(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]Outcome{
		`exceeded retry limit, last status: 429 Too Many Requests`:                            Unavailable,
		`We’re currently experiencing high demand, which may cause temporary errors.`:         Unavailable,
		`Selected model is at capacity. Please try a different model.`:                        Unavailable,
		`{"type":"error","error":{"type":"invalid_request_error"}}`:                           Rejected,
		`unexpected status 403 Forbidden: no, url: http://127.0.0.1/`:                         Auth,
		`something new, with a 401 in it`:                                                     Failed,
		`unexpected status 4011: no`:                                                          Failed,
		`Missing environment variable: ` + "`KEY`.":                                           Auth,
		`stream disconnected before completion: error sending request for url (http://[::1])`: Unavailable,
	} {
		if got := codexFailed(message); got.outcome != want {
			t.Errorf("codex %q: %s, want %s", message, got.outcome, want)
		}
	}
	const turn = `{"type":"system","subtype":"init","session_id":"s"}` + "\n"
	for result, want := range map[string]Outcome{
		`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"prompt_too_long","result":"Prompt is too long"}`:                       Limit,
		`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"completed","api_error_status":401,"result":"Invalid API key"}`:         Auth, // 2.1.197
		`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":400,"result":"API Error"}`:               Rejected,
		`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"new","result":"?"}`:                                                    Failed,
		`{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","stop_reason":"refusal","result":"I cannot help with it"}`: Refused,
	} {
		if r := decode(t, Claude, Exit{Code: 1}, turn+result+"\n"); r.Outcome != want {
			t.Errorf("claude %s: %s, want %s", result, r.Outcome, want)
		}
	}
	failed := `{"type":"init"}` + "\n" + `{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: ?]"}}` + "\n"
	for code, want := range map[int]Outcome{145: Auth, 173: Unavailable, 144: Rejected, 1: Failed} {
		if r := decode(t, Gemini, Exit{Code: code}, failed); r.Outcome != want || (code != 1 && r.Status != code+256) {
			t.Errorf("gemini exit %d: %s %d, want %s", code, r.Outcome, r.Status, want)
		}
	}
	full := `{"type":"error","sessionID":"s","error":{"name":"ContextOverflowError","data":{"message":"too long","statusCode":400}}}` + "\n"
	if r := decode(t, OpenCode, Exit{Code: 1}, full+full); r.Outcome != Limit {
		t.Errorf("opencode: %s", r.Outcome)
	}
}

func TestAFileIsTouchedOnlyByAToolThatEndedWell(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("c", 2*maxInput) // the path comes after more than is kept
	write := func(id, status string) string {
		return fmt.Sprintf(`{"type":"tool_use","part":{"tool":"write","callID":%q,"state":{"status":%q,"input":{"content":%q,"filePath":"/w/%s"}}}}`+"\n", id, status, content, id)
	}
	r := decode(t, OpenCode, Exit{}, write("good", "completed")+write("bad", "error"))
	if want := []File{{"/w/good", "write"}}; !reflect.DeepEqual(r.Files, want) || len(r.Tools[0].Input) != maxInput {
		t.Errorf("files %+v", r.Files)
	}
	changes := `{"type":"item.completed","item":{"id":"f","type":"file_change","status":"%s","changes":[{"path":"/w/a","kind":"add"},{"path":"/w/b","kind":{"type":"update"}}]}}` + "\n"
	r = decode(t, Codex, Exit{}, fmt.Sprintf(changes, "failed"))
	if len(r.Files) != 0 {
		t.Errorf("files %+v", r.Files)
	}
	r = decode(t, Codex, Exit{}, fmt.Sprintf(changes, "completed"))
	if want := []File{{"/w/a", "add"}, {"/w/b", "update"}}; !reflect.DeepEqual(r.Files, want) {
		t.Errorf("files %+v", r.Files)
	}
}

func TestListsEnd(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for i := range maxTools + 5 {
		fmt.Fprintf(&out, `{"type":"tool_use","part":{"tool":"write","callID":"c%d","state":{"status":"completed","input":{"filePath":"/w/%d"}}}}`+"\n", i, i)
		fmt.Fprintf(&out, `{"type":"new%d"}`+"\n", i)
	}
	r := decode(t, OpenCode, Exit{}, out.String())
	if len(r.Tools) != maxTools || len(r.Files) != maxFiles || r.Omitted != 5 || len(r.Warnings) > 2*maxWarnings {
		t.Errorf("%d tools, %d files, %d omitted, %d warnings", len(r.Tools), len(r.Files), r.Omitted, len(r.Warnings))
	}
	if n := warned(r, WarnUnknown); n != maxTools+5 {
		t.Errorf("%d unknown records counted", n)
	}
}

func TestTheVersionGate(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"2.1.332 (Claude Code)\n": "2.1.332", "codex-cli 0.171.0\n": "0.171.0", "0.73.1\n": "0.73.1",
		"WARNING: 1 thing\ncodex-cli 0.172.0-alpha.1": "0.172.0-alpha.1", "": "", "no version here": "",
	} {
		if got := ParseVersion(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
	for _, a := range Adapters() {
		if _, is := a.Warning(a.Tested[0]); is {
			t.Errorf("%s %s is tested", a.Name, a.Tested[0])
		}
		r := a.Decoder("99.0").Close(Exit{})
		if want := "not tested with " + string(a.Name) + " 99.0"; len(r.Warnings) != 1 || r.Warnings[0].Detail != want {
			t.Errorf("%s: %+v", a.Name, r.Warnings)
		}
	}
	// What the program says of itself goes before what it was asked.
	a, _ := ByName(Claude)
	d := a.Decoder("2.1.332")
	_, _ = d.Write([]byte(`{"type":"system","subtype":"init","claude_code_version":"3.0.0"}` + "\n"))
	if r := d.Close(Exit{}); r.Version != "3.0.0" || warned(r, WarnUntested) != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := ByName("aider"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown name: %v", err)
	}
}

func TestAClosedDecoderStaysAsItIs(t *testing.T) {
	t.Parallel()
	a, _ := ByName(Codex)
	d := a.Decoder("")
	first := d.Close(Exit{Code: 1})
	if n, err := d.Write([]byte(codexDone)); n != len(codexDone) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if second := d.Close(Exit{}); !reflect.DeepEqual(first, second) || first.Outcome != NotStarted {
		t.Errorf("%+v, then %+v", first, second)
	}
}

func FuzzClaude(f *testing.F)   { fuzz(f, Claude) }
func FuzzCodex(f *testing.F)    { fuzz(f, Codex) }
func FuzzGemini(f *testing.F)   { fuzz(f, Gemini) }
func FuzzOpenCode(f *testing.F) { fuzz(f, OpenCode) }
func FuzzPi(f *testing.F)       { fuzz(f, Pi) }

// fuzz: whatever comes, in whatever pieces, the record is the same, within its
// bounds and valid JSON.
func fuzz(f *testing.F, name Name) {
	for _, r := range recordings(f) {
		if r.adapter.Name == name {
			f.Add(r.stdout, 7, r.exit.Code, r.exit.Signal)
		}
	}
	a, err := ByName(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stdout []byte, piece, code, signal int) {
		exit := Exit{Code: code, Signal: signal, Stderr: string(stdout)}
		whole := a.Decoder("")
		_, _ = whole.Write(stdout)
		want := whole.Close(exit)
		pieces := a.Decoder("")
		size := max(piece%4096, 1)
		for rest := stdout; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			_, _ = pieces.Write(rest[:min(size, len(rest))])
		}
		if got := pieces.Close(exit); !reflect.DeepEqual(got, want) {
			t.Fatalf("in pieces of %d: %+v, whole: %+v", size, got, want)
		}
		bounded(t, want)
	})
}

func bounded(t *testing.T, r Record) {
	t.Helper()
	if r.Outcome == "" || len(r.Text) > maxText || len(r.Error) > maxError || len(r.Session) > maxWord || len(r.Reason) > maxWord {
		t.Fatalf("outcome %q, text %d, error %d, session %d, reason %d", r.Outcome, len(r.Text), len(r.Error), len(r.Session), len(r.Reason))
	}
	if len(r.Tools) > maxTools || len(r.Permissions) > maxTools || len(r.Files) > maxFiles || len(r.Warnings) > 2*maxWarnings {
		t.Fatalf("%d tools, %d permissions, %d files, %d warnings", len(r.Tools), len(r.Permissions), len(r.Files), len(r.Warnings))
	}
	for _, tool := range r.Tools {
		if len(tool.Input) > maxInput || len(tool.Output) > maxOutput || len(tool.Name) > maxWord || len(tool.ID) > maxWord || tool.Outcome == "" {
			t.Fatalf("tool %+v", tool)
		}
	}
	u := r.Usage
	if min(u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Reasoning, r.Cost.MicroUSD) < 0 {
		t.Fatalf("usage %+v, cost %+v", u, r.Cost)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Record
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if !utf8.ValidString(r.Text+r.Error) || back.Text != r.Text || back.Error != r.Error {
		t.Fatalf("text changes on its way: %q, %q", r.Text, back.Text)
	}
}
