package memory

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

type bench struct {
	t   *testing.T
	db  *db.DB
	reg *tool.Registry
	inv *tool.Invoker
	run string
}

var (
	mine     = label.Of(label.Operator, label.OperatorOnly)
	stranger = label.Of(label.Untrusted("eve"), label.Conversation("c9"))
)

func setup(t *testing.T, d *db.DB) *bench {
	t.Helper()
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, db: d, run: "r1"}
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	m := memory.NewMemory(d, v, eventlog.NewLog(d, v, nil, eventlog.Options{}), memory.Options{})
	if err := New(m, nil).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

// call makes a call the way act does: checked, with a transaction if it is local.
func (b *bench) call(name, input string, l label.Label) (out tool.Output, err error) {
	b.t.Helper()
	def, err := b.reg.Get(name)
	if err != nil {
		b.t.Fatal(err)
	}
	raw := json.RawMessage(input)
	if err := b.reg.Validate(name, raw); err != nil {
		return out, err
	}
	if _, err := def.Scopes(raw); err != nil {
		return out, err
	}
	inv := tool.Invocation{Run: b.run, Conversation: "c1", Subject: "agent:main", Input: raw, Label: l}
	if def.Kind != tool.Local {
		return b.inv.Call(b.t.Context(), name, inv)
	}
	err = b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		inv.Tx = tx
		out, err = b.inv.Call(ctx, name, inv)
		return err
	})
	return out, err
}

var ids = regexp.MustCompile(`mem_[0-9a-f]{32}|\d{4}-\d\d-\d\d`)

// says makes a call as the operator and compares the answer, ids and days aside.
func (b *bench) says(name, input, want string) tool.Output {
	b.t.Helper()
	out, err := b.call(name, input, mine)
	if err != nil {
		b.t.Fatalf("%s %s: %v", name, input, err)
	}
	if got := ids.ReplaceAllString(out.Text+string(out.JSON), "X"); got != want {
		b.t.Errorf("%s %s:\n got %s\nwant %s", name, input, got, want)
	}
	return out
}

func TestAConversationWithMemory(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		b.says("memory.recall", `{"query":"boiler"}`, `{"facts":[]}`)
		b.says("memory.remember", `{"text":"the boiler code is 4711"}`, `Remembered (X).`)
		b.says("memory.remember", `{"text":"The boiler code is 4711."}`, `Known already (X).`)
		b.run = "r2"
		b.says("memory.remember", `{"text":"the boiler code is 4712","pin":true,"importance":9,"ttl_days":30}`,
			`Remembered in place of "the boiler code is 4711" (X).`)
		b.says("memory.recall", `{"query":"what is the boiler code?"}`,
			`{"facts":[{"id":"X","text":"the boiler code is 4712","said":"X","pinned":true}]}`)
		b.says("memory.forget", `{"last":true}`, "Forgotten: the boiler code is 4712 (X)\nIn force again: the boiler code is 4711 (X)")
		b.says("memory.remember", `{"text":"the boiler is in the cellar"}`, `Remembered (X).`)
		b.says("memory.forget", `{"query":"boiler"}`, "Nothing was forgotten, because more than one fact fits. Say which one, by its id or more of its words:\n"+
			"the boiler is in the cellar (X)\nthe boiler code is 4711 (X)")
		b.says("memory.list", `{"limit":1}`, `{"facts":[{"id":"X","text":"the boiler is in the cellar","said":"X"}],"note":"there are more"}`)
		out := b.says("memory.recall", `{"query":"code"}`, `{"facts":[{"id":"X","text":"the boiler code is 4711","said":"X"}]}`)
		b.says("memory.forget", `{"id":"`+ids.FindString(string(out.JSON))+`"}`, "Forgotten: the boiler code is 4711 (X)")
		b.says("memory.list", `{}`, `{"facts":[{"id":"X","text":"the boiler is in the cellar","said":"X"}]}`)
	})
}

func TestLabelsGoIntoMemoryAndComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.says("memory.remember", `{"text":"my account number is 111"}`, `Remembered (X).`)
	if _, err := b.call("memory.remember", `{"text":"the account number of Eve is 666"}`, stranger); err != nil {
		t.Fatal(err)
	}
	if _, err := b.call("memory.remember", `{"text":"somebody likes tea"}`, label.Label{}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]label.Label{
		"account number": label.Join(mine, stranger), "eve": stranger, "my account 111": label.Join(mine, stranger),
		"tea": label.Of(label.Memory, label.OperatorOnly),
	} {
		out, err := b.call("memory.recall", `{"query":"`+query+`"}`, mine)
		if err != nil || out.Label == nil || out.Label.String() != want.String() {
			t.Errorf("%q is labelled %v, %v, want %s", query, out.Label, err, want)
		}
		if tainted := out.Label.Tainted(); tainted != strings.Contains(string(out.JSON), `"from":"untrusted:eve"`) {
			t.Errorf("%q: %s", query, out.JSON)
		}
	}
	if out, err := b.call("memory.forget", `{"query":"account number"}`, mine); err != nil || out.Label == nil || !out.Label.Tainted() {
		t.Errorf("candidates are labelled %v, %v", out.Label, err)
	}
	if out := b.says("memory.recall", `{"query":"nothing"}`, `{"facts":[]}`); out.Label != nil {
		t.Errorf("nothing is labelled %s", out.Label)
	}
}

func TestBadInputsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	for call, class := range map[string]fault.Class{
		`memory.remember {}`:                            fault.Invalid,
		`memory.remember {"text":"   "}`:                fault.Invalid,
		`memory.remember {"text":"x","importance":11}`:  fault.Invalid,
		`memory.remember {"text":"x","ttl_days":0}`:     fault.Invalid,
		`memory.forget {}`:                              fault.Invalid,
		`memory.forget {"last":false}`:                  fault.Invalid,
		`memory.forget {"id":"mem_1","query":"x"}`:      fault.Invalid,
		`memory.forget {"id":"mem_1"}`:                  fault.NotFound,
		`memory.forget {"query":"boiler"}`:              fault.NotFound,
		`memory.forget {"last":true}`:                   fault.NotFound,
		`memory.recall {"query":""}`:                    fault.Invalid,
		`memory.recall {"query":"x","limit":51}`:        fault.Invalid,
		`memory.list {"limit":1000}`:                    fault.Invalid,
		`memory.remember {"text":"x","forever":"true"}`: fault.Invalid,
	} {
		name, input, _ := strings.Cut(call, " ")
		if _, err := b.call(name, input, mine); !fault.Is(err, class) {
			t.Errorf("%s: %v, want %s", call, err, class)
		}
	}
}

func TestDefinitionsSayWhatTheToolsDo(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	if q := b.reg.Quarantined(); len(q) != 0 {
		t.Fatalf("quarantined %v", q)
	}
	for name, want := range map[string]struct {
		scope, input, summary string
		readOnly              bool
	}{
		"memory.remember": {"memory.write", `{"text":"a\u202eb"}`, `remember "a\u202eb"`, false},
		"memory.recall":   {"memory.read", `{"query":"boiler"}`, "recall boiler", true},
		"memory.list":     {"memory.read", `{}`, "list what is remembered", true},
		"memory.forget":   {"memory.forget", `{"last":true}`, "forget what was last remembered here", false},
	} {
		def, err := b.reg.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		need, err := def.Scopes(json.RawMessage(want.input))
		if err != nil || len(need) != 1 || need[0].String() != want.scope || def.ReadOnly != want.readOnly {
			t.Errorf("%s needs %v, %v; read-only %t", name, need, err, def.ReadOnly)
		}
		if got := def.Summary(json.RawMessage(want.input)); got != want.summary {
			t.Errorf("%s is shown as %s", name, got)
		}
		if def.ReadOnly != (def.Repeat == tool.Repeatable) || def.Timeout < time.Second {
			t.Errorf("%s: %+v", name, def)
		}
	}
}
