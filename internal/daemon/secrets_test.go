package daemon

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/logfile"
	"github.com/ombud-run/ombud/internal/model/modeltest"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// apiSecret has what every escape changes.
const apiSecret = `s3kr3t/api+key="0001"&more`

// spelled are the ways a value is written, by encoders that are not ombud's.
func spelled(v string) map[string]string {
	quoted, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	out := map[string]string{
		"raw": v, "json": string(quoted[1 : len(quoted)-1]), "query": url.QueryEscape(v), "path": url.PathEscape(v),
		"hex": hex.EncodeToString([]byte(v)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(v))),
	}
	for before := range 3 {
		for name, enc := range map[string]*base64.Encoding{"std": base64.RawStdEncoding, "url": base64.RawURLEncoding} {
			out[fmt.Sprint("base64 ", name, before)] = enc.EncodeToString([]byte("xyz"[:before] + v + "!"))
		}
	}
	return out
}

// findSecret names what is found of a value in a text.
func findSecret(text []byte, values ...string) string {
	for _, v := range values {
		for how, s := range spelled(v) {
			if strings.HasPrefix(how, "base64") {
				s = s[4 : len(s)-3] // what is the value's alone
			}
			if i := bytes.Index(text, []byte(s)); i >= 0 {
				return fmt.Sprintf("%.4s… as %s, after %q", v, how, text[max(0, i-60):i])
			}
		}
	}
	return ""
}

// leaky is a house whose agent uses secrets and whose surroundings do their best to
// repeat them.
type leaky struct {
	t       *testing.T
	o       Options
	model   *modeltest.Server
	api     *httptest.Server
	mu      sync.Mutex
	headers []string
	shown   bytes.Buffer // all that any front end was told
	client  *wire.Client
	log     *os.File
}

func newLeaky(t *testing.T, kind dbtest.Kind, steps ...modeltest.Step) *leaky {
	t.Helper()
	l := &leaky{t: t, model: modeltest.New(t, steps...)}
	l.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.headers = append(l.headers, r.Header.Get("X-Key"))
		l.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain")
		for _, s := range spelled(r.Header.Get("X-Key")) {
			fmt.Fprintln(w, "you sent", s)
		}
	}))
	t.Cleanup(l.api.Close)
	outside := t.TempDir() // the program's file is not the daemon's
	var leak bytes.Buffer
	for _, v := range []string{apiSecret, modeltest.Key} {
		for how, s := range spelled(v) {
			fmt.Fprintln(&leak, how, s)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "leak.txt"), leak.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf(`log: {level: debug}
models:
  main: fake/small
  providers:
    fake: {base_url: %s/v1, api_key: "secret:model-key"}
agents:
  main: {role: open}
roles:
  open: {allow: [memory, fs.read, fs.write, shell.exec, shell.spawn, net.fetch, secret]}
tools:
  fs: {root: %s}
  shell: {allow: [cat]}
  web: {allow_private: true}
`, l.model.URL, outside)
	l.o = options(t, more+storeOf(t, kind))
	var err error
	if l.log, err = logfile.Open(l.o.Instance.LogFile()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.log.Close() }) // closed twice if all goes well
	l.o.Logger = slog.New(logfile.Handler(l.log, slog.LevelDebug))
	return l
}

// note keeps what a front end was told, an error too.
func (l *leaky) note(v any, err error) {
	raw, encErr := json.Marshal(v)
	if encErr != nil {
		l.t.Fatal(encErr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown.Write(append(raw, '\n'))
	fmt.Fprintln(&l.shown, err, fault.HintOf(err))
}

// say holds one turn and watches it.
func (l *leaky) say(conversation, text string) wire.TurnResult {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	sent, err := l.client.MessageSend(ctx, wire.MessageSendRequest{Conversation: conversation, Text: text})
	l.note(sent, err)
	if err != nil {
		l.t.Fatal(err)
	}
	var streamed strings.Builder
	res, err := l.client.TurnWatch(ctx, wire.TurnWatchRequest{RunID: sent.RunID}, func(n wire.TurnNote) error {
		l.note(n, nil)
		switch n := n.(type) {
		case wire.TurnDelta:
			streamed.WriteString(n.Text)
		case wire.TurnApproval:
			decided, err := l.client.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: n.ID, Decision: wire.Approve})
			l.note(decided, err)
			return err
		}
		return nil
	})
	l.note(res, err)
	l.note(streamed.String(), nil)
	if err != nil {
		l.t.Fatalf("%s: %v; so far %s", conversation, err, l.shown.String())
	}
	return res
}

// lookAtEverything asks every method that shows something.
func (l *leaky) lookAtEverything() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	c := l.client
	events, err := c.EventsList(ctx, wire.EventsListRequest{Limit: 1000})
	l.note(events, err)
	runs, err := c.RunsList(ctx, wire.RunsListRequest{})
	l.note(runs, err)
	for _, r := range runs.Runs {
		one, err := c.RunsGet(ctx, wire.RunsGetRequest{ID: r.ID})
		l.note(one, err)
		told, err := c.Explain(ctx, wire.ExplainRequest{ID: r.ID})
		l.note(told, err)
		receipt, err := c.RunsReceipt(ctx, wire.RunsReceiptRequest{ID: r.ID})
		l.note(receipt, err)
	}
	tail, err := c.AuditTail(ctx, wire.AuditTailRequest{})
	l.note(tail, err)
	_, err = c.AuditExport(ctx, func(line wire.AuditLine) error { l.note(line, nil); return nil })
	l.note(nil, err)
	_, err = c.LogsTail(ctx, wire.LogsTailRequest{Lines: 10000, Level: "debug"}, func(line wire.LogLine) error { l.note(line, nil); return nil })
	l.note(nil, err)
	status, err := c.SystemStatus(ctx)
	l.note(status, err)
	doctor, err := c.DoctorRun(ctx)
	l.note(doctor, err)
	configured, err := c.ConfigExplain(ctx, wire.ConfigExplainRequest{})
	l.note(configured, err)
	secrets, err := c.SecretList(ctx)
	l.note(secrets, err)
	facts, err := c.MemoryList(ctx, wire.MemoryListRequest{})
	l.note(facts, err)
	talks, err := c.ConversationsList(ctx, wire.ConversationsListRequest{})
	l.note(talks, err)
	letters, err := c.DLQList(ctx, wire.DLQListRequest{All: true})
	l.note(letters, err)
	asked, err := c.ApprovalsList(ctx, wire.ApprovalsListRequest{State: "all"})
	l.note(asked, err)
	tools, err := c.ToolsList(ctx)
	l.note(tools, err)
}

// files searches every file of the home.
func (l *leaky) files(values ...string) (seen int) {
	l.t.Helper()
	home := filepath.Dir(filepath.Dir(l.o.Instance.StateDB()))
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was renamed just now
		}
		seen++
		if found := findSecret(raw, values...); found != "" {
			l.t.Errorf("%s holds %s", path, found)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return seen
}

// backUp makes a backup and searches it.
func (l *leaky) backUp(values ...string) {
	l.t.Helper()
	file := filepath.Join(l.t.TempDir(), "all.backup")
	made, err := l.client.BackupCreate(l.t.Context(), wire.BackupCreateRequest{Path: file}, func(p wire.BackupProgress) error { l.note(p, nil); return nil })
	l.note(made, err)
	raw, readErr := os.ReadFile(file)
	if err != nil || readErr != nil {
		l.t.Fatal(err, readErr)
	}
	if found := findSecret(raw, values...); found != "" {
		l.t.Errorf("the backup holds %s", found)
	}
}

// tables searches every row of a PostgreSQL store.
func (l *leaky) tables(values ...string) (rows int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.o.Config.Config.Store.Postgres.Reveal())
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close(ctx)
	list, err := conn.Query(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
	if err != nil {
		l.t.Fatal(err)
	}
	names, err := pgx.CollectRows(list, pgx.RowTo[string])
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		all, err := conn.Query(ctx, fmt.Sprintf("SELECT t::text FROM %s t", pgx.Identifier{name}.Sanitize())) // bytes come as hex
		if err != nil {
			l.t.Fatal(err)
		}
		texts, err := pgx.CollectRows(all, pgx.RowTo[string])
		if err != nil {
			l.t.Fatal(err)
		}
		rows += len(texts)
		if found := findSecret([]byte(strings.Join(texts, "\n")), values...); found != "" {
			l.t.Errorf("table %s holds %s", name, found)
		}
	}
	return rows
}

// A daemon that has secrets, uses them everywhere they can be used, is told them by
// programs, servers, models and its operator, and fails with them: none is on disk in
// any encoding, none is shown by any front end, and none was sent to the model.
func TestNoSecretIsAnywhereOnDiskOrShown(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			input := func(v any) string {
				raw, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				return string(raw)
			}
			var all strings.Builder
			for _, s := range spelled(apiSecret) {
				all.WriteString(s + " ")
			}
			call := func(name string, in any) modeltest.Step {
				return modeltest.Step{Calls: []modeltest.Call{{Name: name, Args: input(in)}}}
			}
			l := newLeaky(t, kind)
			script := modeltest.New(t, // the same server, with steps that know its neighbours
				call("shell_exec", map[string]any{"argv": []string{"cat", "leak.txt"}}),
				modeltest.Step{Text: "the program said " + all.String()},
				call("web_fetch", map[string]any{"url": l.api.URL + "/x", "headers": map[string]string{"X-Key": "{{secret:api}}"}}),
				modeltest.Step{Text: "the page said " + apiSecret},
				modeltest.Step{Calls: []modeltest.Call{{Name: "web_fetch", Args: input(map[string]any{"url": l.api.URL + "/?k=" + url.QueryEscape(apiSecret)})}}},
				call("memory_remember", map[string]any{"text": "it is " + apiSecret}),
				modeltest.Step{Text: "that was refused"},
				call("fs_write", map[string]any{"path": "out.txt", "content": base64.StdEncoding.EncodeToString([]byte("u:" + apiSecret))}),
				modeltest.Step{Calls: []modeltest.Call{{Name: "s3kr3t", Args: input(map[string]string{"a": apiSecret})}, {Name: "fs_read", Args: input(map[string]string{"path": modeltest.Key})}}},
				modeltest.Step{Text: "nothing worked"},
				modeltest.Step{Fault: modeltest.Refuse, Status: 400, Body: `{"error":{"message":"the key ` + modeltest.Key + ` is bad, and so is ` + url.QueryEscape(apiSecret) + `","type":"invalid_request_error"}}`},
				modeltest.Step{Text: "I have seen nothing"},
			)
			l.model.Close()
			l.model = script
			l.pointTo(script.URL)
			client, stop := up(t, l.o)
			l.client = client
			l.use()
			l.lookAtEverything()
			l.backUp(apiSecret, modeltest.Key)
			if n := l.files(apiSecret, modeltest.Key); n < 3 {
				t.Errorf("only %d files were looked at", n)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if err := l.log.Close(); err != nil {
				t.Error(err)
			}
			l.files(apiSecret, modeltest.Key)
			if kind == dbtest.KindPostgres {
				if n := l.tables(apiSecret, modeltest.Key); n < 50 {
					t.Errorf("only %d rows were looked at", n)
				}
			}
			if found := findSecret(l.shown.Bytes(), apiSecret, modeltest.Key); found != "" {
				t.Errorf("a front end was told %s", found)
			}
			if !strings.Contains(l.shown.String(), "[secret:api]") || !strings.Contains(l.shown.String(), "[secret:model-key]") {
				t.Error("nothing was hidden, so nothing was tried")
			}
			for _, r := range script.Requests() {
				if found := findSecret(r.Body, apiSecret, modeltest.Key); found != "" {
					t.Errorf("the model was told %s", found)
				}
				if r.Header.Get("Authorization") != "Bearer "+modeltest.Key {
					t.Error("the model was asked without its key")
				}
			}
			if len(l.headers) != 1 || l.headers[0] != apiSecret {
				t.Errorf("the server was sent %q", l.headers)
			}
			l.sawWhatItHides()
		})
	}
}

// pointTo changes where the provider of the configuration is.
func (l *leaky) pointTo(base string) {
	l.t.Helper()
	raw, err := os.ReadFile(l.o.Instance.ConfigFile())
	if err != nil {
		l.t.Fatal(err)
	}
	at := bytes.Index(raw, []byte("base_url: ")) + len("base_url: ")
	end := at + bytes.Index(raw[at:], []byte("/v1"))
	raw = append(append(bytes.Clone(raw[:at]), base...), raw[end:]...)
	if err := os.WriteFile(l.o.Instance.ConfigFile(), raw, 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.o.Config, err = config.Load(config.Input{File: l.o.Instance.ConfigFile(), Flags: unheard(string(raw))})
	if err != nil {
		l.t.Fatal(err)
	}
}

// use sets the secrets and does everything with them.
func (l *leaky) use() {
	l.t.Helper()
	ctx := l.t.Context()
	if got := l.say("before", "hello"); got.Outcome == "completed" || got.Error == nil || !strings.Contains(got.Error.Message, "there is no secret model-key") {
		l.t.Errorf("without its key: %+v", got)
	}
	status, err := l.client.SystemStatus(ctx)
	if err != nil || len(status.Missing) == 0 || status.Missing[0].Name != "secret model-key" || status.Missing[0].Hint != "ombud secret set model-key" {
		l.t.Errorf("status says %+v, %v", status.Missing, err)
	}
	for _, req := range []wire.SecretSetRequest{
		{Name: "model-key", Value: []byte(modeltest.Key)},
		{Name: "api", Value: []byte(apiSecret), Hosts: []string{"127.0.0.1"}},
	} {
		got, err := l.client.SecretSet(ctx, req)
		l.note(got, err)
		if err != nil {
			l.t.Fatal(err)
		}
	}
	if got := l.say("shell", "run it"); got.Outcome != "completed" || got.ToolCalls != 1 {
		l.t.Errorf("%+v", got)
	}
	if got := l.say("web", "fetch it"); got.Outcome != "completed" || got.ToolCalls != 1 {
		l.t.Errorf("%+v", got)
	}
	for range 2 {
		if got := l.say("inputs", "try it"); got.Outcome != "completed" {
			l.t.Errorf("%+v", got)
		}
	}
	if got := l.say("fails", "fail"); got.Outcome == "completed" {
		l.t.Errorf("%+v", got)
	}
	if got := l.say("operator", "the value is "+apiSecret+", remember it"); got.Outcome != "completed" {
		l.t.Errorf("%+v", got)
	}
	// A notification that nobody knows is logged, with its name.
	odd, err := json.Marshal(map[string]string{"jsonrpc": "2.0", "method": "s.{" + apiSecret + "} " + url.QueryEscape(modeltest.Key) + modeltest.Key})
	if err != nil {
		l.t.Fatal(err)
	}
	l.note(string(dialRaw(l.t, l.o.Instance.Socket(), string(odd), `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`)), nil)
	added, err := l.client.AdapterAdd(ctx, wire.AdapterAddRequest{Name: "net"})
	if err != nil {
		l.t.Fatal(err)
	}
	agent := wire.NewAgentClient(l.o.Instance.AgentSocket())
	delivered, err := agent.AdapterDeliver(ctx, wire.AdapterDeliverRequest{
		Credential: added.Credential, Chat: "c", Sender: "s", Key: "k", Text: "my credential is " + added.Credential + " and yours " + apiSecret,
	})
	l.note(delivered, err)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if _, part, _ := strings.Cut(added.Credential, "."); findSecret(l.shown.Bytes(), part) != "" {
			l.t.Errorf("a front end was told the credential")
		}
		l.files(added.Credential)
	})
}

// sawWhatItHides makes sure that the test can fail: what it searches with finds the
// values where they are.
func (l *leaky) sawWhatItHides() {
	l.t.Helper()
	for how, s := range spelled(apiSecret) {
		if findSecret([]byte("x "+s+" y"), apiSecret) == "" {
			l.t.Errorf("%s is not found", how)
		}
	}
}

func TestAChangedSecretHoldsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLeaky(t, dbtest.KindSQLite, modeltest.Step{Text: "with the right one"})
	client, _ := up(t, l.o)
	l.client = client
	set := func(name, value string) wire.SecretSetResult {
		t.Helper()
		got, err := client.SecretSet(t.Context(), wire.SecretSetRequest{Name: name, Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := set("model-key", "not-the-right-key-0002"); len(got.Warnings) != 0 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "models.providers.fake.api_key uses it from the next request on") {
		t.Errorf("%+v", got)
	}
	if got := l.say("a", "hello"); got.Outcome == "completed" {
		t.Errorf("with a wrong key: %+v", got)
	}
	set("model-key", modeltest.Key)
	if got := l.say("b", "hello"); got.Reply != "with the right one" {
		t.Errorf("with the right one: %+v", got)
	}
	if got := set("weak", "aaaaaaaaaa"); len(got.Warnings) != 1 {
		t.Errorf("%+v", got)
	}
	if got := set("short", "abc"); len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "8 bytes") {
		t.Errorf("%+v", got)
	}
	for _, word := range []string{"completed", "operator", "approvals", "fingerprint", "conversation", "verification", "semitrusted", "secret.set"} {
		if _, err := client.SecretSet(t.Context(), wire.SecretSetRequest{Name: "word", Value: []byte(word)}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", word, err)
		}
	}
	removed, err := client.SecretRemove(t.Context(), wire.SecretRemoveRequest{Name: "model-key"})
	if err != nil || len(removed.Notes) != 1 {
		t.Errorf("%+v, %v", removed, err)
	}
	checks, err := client.DoctorRun(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(checks), "there is no secret model-key") {
		t.Errorf("doctor says %+v, %v", checks, err)
	}
}

// No socket but the operator's can set a secret, and none gives one back.
func TestSecretsAreTheOperatorsAlone(t *testing.T) {
	t.Parallel()
	for _, m := range wire.AgentMethods() {
		if strings.HasPrefix(m.Name, "secret.") {
			t.Errorf("%s is on the agent socket", m.Name)
		}
	}
	o := options(t, "")
	client, _ := up(t, o)
	if _, err := client.SecretSet(t.Context(), wire.SecretSetRequest{Name: "api", Value: []byte(apiSecret)}); err != nil {
		t.Fatal(err)
	}
	for _, m := range wire.Methods() {
		if strings.HasPrefix(m.Name, "secret.") && m.Verbatim != "" {
			t.Errorf("%s answers verbatim", m.Name)
		}
	}
	var got map[string]json.RawMessage
	raw := dialRaw(t, o.Instance.AgentSocket(), `{"jsonrpc":"2.0","id":1,"method":"secret.list"}`)
	if err := json.Unmarshal(raw, &got); err != nil || got["error"] == nil {
		t.Errorf("%s, %v", raw, err)
	}
}

// dialRaw sends frames and returns the first that comes back.
func dialRaw(t *testing.T, socket string, bodies ...string) []byte {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, body := range bodies {
		frame, err := wire.EncodeFrame(json.RawMessage(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := wire.ReadFrame(conn)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return raw
}

func TestWeakValuesOfTheEnvironmentAreTold(t *testing.T) {
	t.Parallel()
	o := options(t, "models:\n  main: builtin\n  providers:\n    x: {base_url: http://x, api_key_env: X_KEY}\n")
	env := map[string]string{"ANTHROPIC_API_KEY": "completed", "OPENAI_API_KEY": "aaaaaaaaaa", "X_KEY": "abc", "PGPASSWORD": "str0ng-P4ssword/77"}
	o.Environment = config.ReadEnvironment(func(name string) string { return env[name] })
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, hide := hiding(o)
	if got, want := hide.String("completed aaaaaaaaaa abc str0ng-P4ssword/77"), "completed [secret:OPENAI_API_KEY] abc [secret:PGPASSWORD]"; got != want {
		t.Errorf("%s", got)
	}
	for name, told := range map[string]int{"ANTHROPIC_API_KEY": 1, "OPENAI_API_KEY": 1, "X_KEY": 1, "PGPASSWORD": 0} {
		if strings.Count(log.String(), "name="+name+" ") != told {
			t.Errorf("%s: the log says %s", name, log.String())
		}
	}
	if strings.Contains(log.String(), "aaaaaaaaaa") {
		t.Error(log.String())
	}
}

// A passphrase that came through the pipe is in no variable and in no file: it is
// known from the pipe alone.
func TestAPassphraseThatWasHandedOverIsHidden(t *testing.T) {
	t.Parallel()
	for _, variable := range []bool{false, true} {
		o, _ := phrased(options(t, ""), "")
		handed, err := vault.NewPassphrase("the test", []byte("correct horse battery"))
		if err != nil {
			t.Fatal(err)
		}
		o.Handed, o.HandedVariable = handed, variable
		var log safeBuffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c, _ := up(t, o)
		if got := ask(t, c, "remember that it is correct horse battery"); strings.Contains(got.Reply, "correct horse") {
			t.Errorf("handed over, from the variable %t: %q", variable, got.Reply)
		}
		if list, err := c.MemoryList(t.Context(), wire.MemoryListRequest{}); err != nil || strings.Contains(fmt.Sprint(list), "correct horse") {
			t.Errorf("%v %v", list, err)
		}
	}
}
