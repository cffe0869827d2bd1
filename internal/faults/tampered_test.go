package faults

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // what only the store's own package opens otherwise: somebody else at the file

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// sealedColumns are those the migrations say are sealed.
func sealedColumns(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("../db/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	table := regexp.MustCompile(`^CREATE TABLE (\w+)`)
	column := regexp.MustCompile(`^\s+(\w+) .*-- sealed`)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		now := ""
		for _, line := range strings.Split(string(raw), "\n") {
			if m := table.FindStringSubmatch(line); m != nil {
				now = m[1]
			}
			if m := column.FindStringSubmatch(line); m != nil {
				out = append(out, now+"."+m[1])
			}
		}
	}
	return out
}

// unseen are sealed columns that this life leaves empty, with why. A column that is
// filled and not read by anything below fails the test.
var unseen = map[string]string{
	"blocked.error":           "no subscription fails here",
	"dead_letters.error":      "no subscription fails here",
	"outbox.ref":              "the local channel has no ids of its own",
	"outbox.error":            "nothing fails to be delivered here",
	"runs.error":              "no run fails here",
	"approvals.note":          "nobody leaves one",
	"approvals.answer":        "nothing has a form here; internal/approval has a test of its own",
	"grants.body":             "nothing is granted here",
	"levels.body":             "no level is set here",
	"jobs.body":               "no job runs here",
	"senders.body":            "nobody is paired here",
	"secrets.body":            "no secret is set here",
	"schedules.error":         "no schedule fails here",
	"targets.body":            "nothing is there to be started here",
	"recipe_definitions.body": "no recipe is here",
	"recipe_files.body":       "no recipe is here",
	"signals.payload":         "no run is sent a signal here",
	"runs.progress":           "no run tells how far it is here",
	"loop_notes.body":         "no loop runs here; internal/loops has a test of its own",
	"loop_logs.text":          "the same",
	"integrations.reason":     "the same",

	"signed_pieces.data": "no signed loop is here; internal/signed has tests of its own",
	"signed_loops.body":  "the same",
	"signed_trust.body":  "the same",

	"channels.body":       "no chat network is connected here; internal/channel has a test of its own",
	"channels.cursor":     "the same",
	"channel_pieces.body": "the same",
	"channel_pieces.ref":  "the same",
	"adapters.settings":   "no adapter is here; internal/channel/remote has a test of its own",

	"delegation_sessions.body": "no coding agent is here; internal/delegate has a test of its own",
	"delegations.body":         "the same",
	"delegations.record":       "the same",

	"mcp_servers.body":    "no server of MCP is here; internal/mcp/client has a test of its own",
	"mcp_servers.pinned":  "the same",
	"mcp_servers.offered": "the same",
	"mcp_servers.login":   "the same",

	"tool_processes.body":       "there is no tool process here",
	"tool_processes.registered": "there is no tool process here",
}

// TestATamperedRowIsNamed flips a bit of every sealed column of a store that has
// been lived in, one at a time, and reads it through what a client or an agent does.
// The failure is of class verification and names the column and the row.
func TestATamperedRowIsNamed(t *testing.T) {
	t.Parallel()
	h := build(t, "approvals:\n  hold: 10m\n",
		`calls: [{tool: memory.remember, input: {text: the boiler code is 4711}}, {tool: fs.read, input: {path: none.txt}}, {tool: remind.set, input: {text: tea, in_seconds: 3600}}]`,
		`calls: [{tool: fs.read, input: {path: long.txt, limit: 200000}}]`,
		`calls: [{tool: fs.write, input: {path: a.txt, content: new}}]`)
	stop := h.live()
	h.write(h.file("long.txt"), strings.Repeat("a line of text\n", 12000))
	for _, dir := range []string{"objects", "refs"} { // a repository, so that its state is kept
		if err := os.MkdirAll(h.file(".git/"+dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.write(h.file(".git/HEAD"), "ref: refs/heads/main\n")
	first := h.send("go")
	h.decide(h.question(first.RunID).ID, wire.Approve)
	h.answer(first.RunID)
	stop()
	h.script(
		`calls: [{tool: memory.recall, input: {query: boiler code}}, {tool: fs.read, input: {path: a.txt}}, {tool: result.read, input: {handle: ` + h.handle() + `}}]`)
	h.live()
	if _, err := h.client.MessageSend(h.within(), wire.MessageSendRequest{Text: "/status", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.client.ScheduleAdd(h.within(), wire.ScheduleAddRequest{When: "@yearly", Zone: "UTC", Say: "a year is over"}); err != nil {
		t.Fatal(err)
	}
	store, err := sql.Open("sqlite", "file:"+h.in.StateDB()+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, column := range sealedColumns(t) {
		table, name, _ := strings.Cut(column, ".")
		_, logged := h.log.since(0)
		rows, restore := tamper(t, store, table, name)
		if rows == nil {
			if unseen[column] == "" {
				t.Errorf("%s: no row has it", column)
			}
			continue
		}
		var said []string
		heard := h.readEverything(first, column)
		if more, _ := h.log.since(logged); column == "history.body" { // the conversation goes on without it: the log tells
			heard = append(heard, fault.New(fault.Verification, "%s", strings.ReplaceAll(more, `\"`, `"`)))
		}
		for _, err := range heard {
			if err == nil {
				continue
			}
			said = append(said, err.Error())
			at := regexp.MustCompile(`open ([a-z_.]+) of row "([^"]+)"`).FindStringSubmatch(err.Error())
			if at == nil || at[1] != column {
				continue
			}
			if fault.ClassOf(err) != fault.Verification {
				t.Errorf("%s: class %s: %v", column, fault.ClassOf(err), err)
			}
			if !slices.ContainsFunc(rows, func(v string) bool { return len(v) > 0 && strings.Contains(at[2], v) }) {
				t.Errorf("%s: the row is called %q, and is %q", column, at[2], rows)
			}
			said = nil
			break
		}
		if said != nil || len(rows) == 0 {
			t.Errorf("%s: what was said is %q", column, said)
		}
		restore()
	}
}

// handle is that of the long result.
func (h *house) handle() string {
	h.t.Helper()
	store, err := sql.Open("sqlite", "file:"+h.in.StateDB())
	if err != nil {
		h.t.Fatal(err)
	}
	defer store.Close()
	var id string
	if err := store.QueryRow("SELECT id FROM blobs").Scan(&id); err != nil {
		h.t.Fatal(err)
	}
	return id
}

// tamper flips the last bit of a column in all rows that have it, and returns what
// else is in them.
func tamper(t *testing.T, store *sql.DB, table, column string) (others []string, restore func()) {
	t.Helper()
	type saved struct {
		row   int64
		value []byte
	}
	var was []saved
	rows, err := store.Query(fmt.Sprintf("SELECT rowid, * FROM %s WHERE %s IS NOT NULL AND length(%s) > 0", table, column, column))
	if err != nil {
		t.Fatal(err)
	}
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		s := saved{}
		for i, v := range values {
			switch got := (*(v.(*any))).(type) {
			case int64:
				if i == 0 {
					s.row = got
				}
				others = append(others, fmt.Sprint(got))
			case string:
				others = append(others, got)
			case []byte:
				if names[i] == column {
					s.value = slices.Clone(got)
				}
			}
		}
		was = append(was, s)
	}
	if err := errorOf(rows); err != nil {
		t.Fatal(err)
	}
	put := func(s saved, value []byte) {
		if _, err := store.Exec(fmt.Sprintf("UPDATE %s SET %s = ? WHERE rowid = ?", table, column), value, s.row); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range was {
		changed := slices.Clone(s.value)
		changed[len(changed)-1] ^= 1
		put(s, changed)
	}
	return others, func() {
		for _, s := range was {
			put(s, s.value)
		}
	}
}

func errorOf(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// readEverything asks for all that a client can see, and then has the agent take a
// message, whose failure it returns as well.
func (h *house) readEverything(first wire.MessageSendResult, column string) (out []error) {
	h.t.Helper()
	ctx := h.within()
	note := func(err error) { out = append(out, err) }
	_, err := h.client.EventsList(ctx, wire.EventsListRequest{Limit: 1000})
	note(err)
	_, err = h.client.RunsGet(ctx, wire.RunsGetRequest{ID: first.RunID})
	note(err)
	_, err = h.client.Explain(ctx, wire.ExplainRequest{ID: first.EventID})
	note(err)
	_, err = h.client.RunsVerify(ctx)
	note(err)
	_, err = h.client.ApprovalsList(ctx, wire.ApprovalsListRequest{})
	note(err)
	_, err = h.client.MemoryList(ctx, wire.MemoryListRequest{})
	note(err)
	_, err = h.client.ConversationsList(ctx, wire.ConversationsListRequest{})
	note(err)
	_, err = h.client.ScheduleList(ctx, wire.ScheduleListRequest{})
	note(err)
	_, err = h.client.MessageSend(ctx, wire.MessageSendRequest{Text: "/status", Key: "k"})
	note(err)
	sent, err := h.client.MessageSend(ctx, wire.MessageSendRequest{Text: "again boiler code", Key: "again " + column + time.Now().String()})
	note(err)
	if err != nil {
		return out
	}
	res := h.answer(sent.RunID)
	if res.Error != nil {
		note(fault.New(res.Error.Class, "%s", res.Error.Message))
	}
	e, err := h.client.Explain(ctx, wire.ExplainRequest{ID: sent.EventID})
	note(err)
	for _, s := range e.Steps {
		if s.Error != nil {
			note(fault.New(s.Error.Class, "%s", s.Error.Message))
		}
	}
	return out
}
