package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	store "github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixed struct{ at time.Time }

func (f fixed) Read() eventlog.Reading { return eventlog.Reading{Wall: f.at} }

func (fixed) After(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

type bench struct {
	t   *testing.T
	db  *db.DB
	s   *store.Schedules
	reg *tool.Registry
	inv *tool.Invoker
}

func setup(t *testing.T, d *db.DB) *bench {
	t.Helper()
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, db: d}
	log := eventlog.NewLog(d, v, nil, eventlog.Options{})
	fire := func(context.Context, *db.Tx, store.Firing) (string, error) {
		return "", errors.New("nothing fires here")
	}
	b.s = store.New(d, v, log, run.New(d, v, log, run.NewKinds(), run.Options{}), fire, store.Options{Clock: fixed{time.Date(2026, 3, 4, 11, 0, 0, 0, time.UTC)}})
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	if err := New(func() Schedules { return b.s }).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

var clean = label.Of(label.Operator, label.OperatorOnly)

func (b *bench) call(name, input string, more ...func(*tool.Invocation)) (out tool.Output, err error) {
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
	inv := tool.Invocation{Conversation: "c1", Subject: "agent:main", Input: raw, Label: clean}
	for _, m := range more {
		m(&inv)
	}
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

func (b *bench) says(name, input, want string, more ...func(*tool.Invocation)) tool.Output {
	b.t.Helper()
	out, err := b.call(name, input, more...)
	if err != nil || out.Text != want {
		b.t.Errorf("%s %s:\n got %q, %v\nwant %q", name, input, out.Text, err, want)
	}
	return out
}

func other(inv *tool.Invocation)      { inv.Conversation = "c2" }
func unattended(inv *tool.Invocation) { inv.Unattended = true }
func nowhere(inv *tool.Invocation)    { inv.Conversation = "" }

func TestAnAgentKeepsSchedulesOfItsConversation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		b.says("schedule.list", `{}`, "There are no schedules.")
		b.says("schedule.add", `{"name":"brief","when":"30 8 * * *","zone":"Europe/Stockholm","say":"brief me"}`,
			"Schedule brief is set: 30 8 * * * in Europe/Stockholm, next at 2026-03-05T08:30:00+01:00.")
		b.says("schedule.add", `{"name":"mail","when":"@every 90m","zone":"UTC","say":"look at the mail","missed":"skip"}`,
			"Schedule mail is set: @every 90m in UTC, next at 2026-03-04T12:30:00Z.")
		b.says("schedule.add", `{"name":"theirs","when":"@daily","zone":"UTC","say":"x"}`, "Schedule theirs is set: @daily in UTC, next at 2026-03-05T00:00:00Z.", other)
		out := b.says("schedule.list", `{}`, "brief: 30 8 * * * in Europe/Stockholm, next at 2026-03-05T08:30:00+01:00: brief me\n"+
			"mail: @every 90m in UTC, next at 2026-03-04T12:30:00Z: look at the mail")
		if out.Label == nil || out.Label.Tainted() {
			t.Errorf("labelled %v", out.Label)
		}
		b.says("schedule.pause", `{"name":"mail"}`, "Schedule mail is paused.")
		b.says("schedule.rm", `{"name":"brief"}`, "Schedule brief is removed.")
		b.says("schedule.list", `{}`, "mail: @every 90m in UTC, paused: look at the mail")
		b.says("schedule.list", `{}`, "There are no schedules.", nowhere)
		list, err := b.s.List(t.Context(), store.Filter{Owner: "agent:main"})
		if err != nil || len(list) != 2 || list[0].Starts.Agent != "main" || list[0].Starts.Conversation != "c1" || list[0].Missed != store.Skip {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestWhatAnAgentMayNotDo(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	const add = `{"name":"brief","when":"30 8 * * *","say":"brief me"}`
	b.says("schedule.add", `{"name":"there","when":"@daily","zone":"UTC","say":"x"}`, "Schedule there is set: @daily in UTC, next at 2026-03-05T00:00:00Z.")
	for _, c := range []struct {
		name, input string
		class       fault.Class
		as          func(*tool.Invocation)
	}{
		{"schedule.add", add, fault.Denied, unattended},
		{"schedule.pause", `{"name":"there"}`, fault.Denied, unattended},
		{"schedule.rm", `{"name":"there"}`, fault.Denied, unattended},
		{"schedule.add", add, fault.Invalid, nowhere},
		{"schedule.rm", `{"name":"there"}`, fault.NotFound, other},
		{"schedule.pause", `{"name":"nothing"}`, fault.NotFound, nil},
		{"schedule.add", `{"name":"there","when":"@daily","say":"x"}`, fault.Conflict, nil},
		{"schedule.add", `{"name":"bad","when":"0 0 31 2 *","say":"x"}`, fault.Invalid, nil},
		{"schedule.add", `{"name":"bad","when":"@daily","zone":"Mars/X","say":"x"}`, fault.Invalid, nil},
		{"schedule.add", `{"name":"a/b","when":"@daily","say":"x"}`, fault.Invalid, nil},
		{"schedule.add", `{"name":"bad","when":"@daily"}`, fault.Invalid, nil},
		{"schedule.add", add, fault.Invalid, func(inv *tool.Invocation) { inv.Subject = "job:x" }},
	} {
		as := c.as
		if as == nil {
			as = func(*tool.Invocation) {}
		}
		if out, err := b.call(c.name, c.input, as); !fault.Is(err, c.class) {
			t.Errorf("%s %s: %q, %v, want %s", c.name, c.input, out.Text, err, c.class)
		}
	}
	for i := range maxMade - 1 {
		if _, err := b.call("schedule.add", fmt.Sprintf(`{"name":"n%d","when":"@daily","say":"x"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.call("schedule.add", add); !fault.Is(err, fault.Invalid) {
		t.Errorf("one too many: %v", err)
	}
}

func TestWordsKeepTheirLabel(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	for name, l := range map[string]label.Label{
		"stranger": label.Join(clean, label.Of(label.Untrusted("mail:eve"), label.Conversation("c1"))), "nobody": {},
	} {
		if _, err := b.call("schedule.add", `{"name":"`+name+`","when":"@daily","say":"x"}`, func(inv *tool.Invocation) { inv.Label = l }); err != nil {
			t.Fatal(err)
		}
	}
	list, err := b.s.List(t.Context(), store.Filter{})
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, x := range list {
		if !x.Starts.Label.Tainted() {
			t.Errorf("%s says it as %s", x.Name, x.Starts.Label)
		}
	}
	if out, err := b.call("schedule.list", `{}`); err != nil || out.Label == nil || !out.Label.Tainted() {
		t.Errorf("listed as %v, %v", out.Label, err)
	}
}

func TestDefinitionsSayWhatTheToolsDo(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	for name, want := range map[string][3]string{
		"schedule.add":   {"schedule.create:brief", `{"name":"brief","when":"30 8 * * *","zone":"UTC","say":"a\u202eb"}`, `schedule brief at 30 8 * * * in UTC: "a\u202eb"`},
		"schedule.list":  {"schedule.list", `{}`, "list schedules"},
		"schedule.pause": {"schedule.update:brief", `{"name":"brief"}`, "pause the schedule brief"},
		"schedule.rm":    {"schedule.delete:brief", `{"name":"brief"}`, "remove the schedule brief"},
	} {
		def, err := b.reg.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		need, err := def.Scopes(json.RawMessage(want[1]))
		if err != nil || len(need) != 1 || need[0].String() != want[0] || def.ReadOnly != (name == "schedule.list") {
			t.Errorf("%s needs %v, %v; read-only %t", name, need, err, def.ReadOnly)
		}
		if got := def.Summary(json.RawMessage(want[1])); got != want[2] {
			t.Errorf("%s is shown as %s", name, got)
		}
		if ask := name == "schedule.add" || name == "schedule.rm"; def.Irreversible != ask {
			t.Errorf("%s: irreversible %t", name, def.Irreversible)
		}
	}
}
