package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestMain: this program is also what the launcher of a job executes, and the wacli of a
// test.
func TestMain(m *testing.M) {
	whatsapptest.Main()
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

const patience = 40 * time.Second

// options are those of a daemon in a directory of its own, with the interpreter
// that comes with ombud, and what else is in the configuration.
func options(t *testing.T, more string) Options {
	t.Helper()
	dir := t.TempDir()
	in, err := instance.New("", func(name string) string {
		if name == "OMBUD_HOME" {
			return dir
		}
		return ""
	}, dir)
	if err == nil {
		err = in.MakeDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(more, "models:") {
		more += "models:\n  main: builtin\n"
	}
	if err := os.WriteFile(in.ConfigFile(), []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Input{File: in.ConfigFile(), Flags: unheard(more)})
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Instance: in, Config: loaded, Environment: config.ReadEnvironment(func(string) string { return "" }),
		Logger: slog.New(slog.DiscardHandler), Version: "test",
	}
}

// up runs a daemon and returns when it is ready. stop ends it and returns how.
func up(t *testing.T, o Options) (client *wire.Client, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { ended <- Run(ctx, o) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("the daemon did not start: %v", err)
	case <-time.After(patience):
		cancel()
		t.Fatal("the daemon does not become ready")
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	})
	return wire.NewClient(o.Instance.Socket()), stop
}

func ask(t *testing.T, c *wire.Client, text string) wire.TurnResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := c.MessageSend(ctx, wire.MessageSendRequest{Text: text, Wait: true})
	if err != nil || got.Result == nil {
		t.Fatalf("ask %q: %+v, %v", text, got, err)
	}
	return *got.Result
}

func TestADaemonAnswersFromWhatItRemembersOnEveryStore(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			store := ""
			if kind == dbtest.KindPostgres {
				store = fmt.Sprintf("store: %q\n", dbtest.PostgresDSN(t))
			}
			o := options(t, store)
			c, stop := up(t, o)
			if a := ask(t, c, "remember that the boiler code is 4711"); a.Outcome != "completed" || a.ToolCalls != 1 {
				t.Errorf("%+v", a)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			c, _ = up(t, o)
			if a := ask(t, c, "what is the boiler code?"); !strings.Contains(a.Reply, "4711") {
				t.Errorf("%+v", a)
			}
			s, err := c.SystemStatus(t.Context())
			if err != nil || s.Store != string(kind) || !s.Ready || !s.Idle || s.PID != os.Getpid() {
				t.Errorf("%+v, %v", s, err)
			}
			e, err := c.Explain(t.Context(), wire.ExplainRequest{ID: "last"})
			if err != nil || e.Event == nil || e.Run == nil || len(e.Deliveries) != 1 || len(e.Left) != 0 || !strings.Contains(e.Reply, "4711") {
				t.Errorf("%+v, %v", e, err)
			}
			if v, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil || v.Chains < 2 || v.Entries == 0 {
				t.Errorf("%+v, %v", v, err)
			}
			if v, err := c.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 || v.Runs != 2 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestStartAndStopUnderLoad(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	sent := map[string]bool{}
	for round := range 4 {
		c, stop := up(t, o)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					got, err := c.MessageSend(context.Background(), wire.MessageSendRequest{
						Conversation: fmt.Sprint(i), Text: fmt.Sprintf("remember that fact %d of %d is %d", n, i, round),
					})
					if err != nil {
						return // it stops
					}
					mu.Lock()
					sent[got.RunID] = true
					mu.Unlock()
				}
			})
		}
		slowly := time.NewTimer(time.Duration(round) * 40 * time.Millisecond) // stop at another point each time
		<-slowly.C
		if round%2 == 0 {
			if _, err := c.SystemStop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		wg.Wait()
	}
	c, _ := up(t, o)
	for id := range sent {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		res, err := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: id}, func(wire.TurnNote) error { return nil })
		cancel()
		if err != nil || res.Outcome != "completed" {
			t.Fatalf("%s of %d: %+v, %v", id, len(sent), res, err)
		}
	}
	if v, err := c.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 || v.Runs != int64(len(sent)) {
		t.Errorf("%d were acknowledged: %+v, %v", len(sent), v, err)
	}
}

// A daemon that is told to stop before it is ready leaves nothing behind.
func TestAStopDuringTheStart(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	for range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, o) }()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !fault.Is(err, fault.Cancelled) {
			t.Errorf("%s: %v", fault.ClassOf(err), err)
		}
	}
	c, _ := up(t, o)
	if a := ask(t, c, "help"); a.Outcome != "completed" {
		t.Errorf("%+v", a)
	}
}

func TestASecondDaemonOfAnInstanceIsRefused(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, _ := up(t, o)
	if err := Run(t.Context(), o); !fault.Is(err, fault.Running) || fault.CodeOf(fault.ClassOf(err)).Exit != 73 {
		t.Errorf("%v", err)
	}
	if a := ask(t, c, "help"); a.Outcome != "completed" {
		t.Errorf("the first one: %+v", a)
	}
}

// What can be wrong with a home, and the class and exit code it ends with. Nothing
// of it may change the store, and the same home works again when it is put right.
func TestAHomeThatCannotBeTrustedIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm  func(o Options) error
		class fault.Class
		says  string
	}{
		"no key": {func(o Options) error { return os.Remove(o.Instance.KeyFile()) }, fault.Verification, "is not at"},
		"another key": {func(o Options) error {
			return os.WriteFile(o.Instance.KeyFile(), []byte(strings.Repeat("k", 32)), 0o600)
		}, fault.Verification, "not the one"},
		"a short key":  {func(o Options) error { return os.Truncate(o.Instance.KeyFile(), 31) }, fault.Config, "31 bytes"},
		"a zeroed key": {func(o Options) error { return os.WriteFile(o.Instance.KeyFile(), make([]byte, 32), 0o600) }, fault.Config, "zeros"},
		"a wide key":   {func(o Options) error { return os.Chmod(o.Instance.KeyFile(), 0o644) }, fault.Permission, "0644"},
		"no database": {func(o Options) error {
			return os.WriteFile(o.Instance.StateDB(), []byte(strings.Repeat("no database", 1000)), 0o600)
		}, fault.Verification, ""},
		"a newer one":   {newerSchema, fault.Config, "knows up to"},
		"a cut one":     {func(o Options) error { return os.Truncate(o.Instance.StateDB(), 20<<10) }, fault.Verification, ""},
		"a lost schema": {func(o Options) error { return os.WriteFile(o.Instance.StateDB(), nil, 0o600) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, "")
			client, stop := up(t, o)
			ask(t, client, "remember that the boiler code is 4711")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			kept := map[string][]byte{}
			for _, file := range []string{o.Instance.KeyFile(), o.Instance.StateDB()} {
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				kept[file] = b
			}
			if err := c.harm(o); err != nil {
				t.Fatal(err)
			}
			harmed, _ := os.ReadFile(o.Instance.StateDB())
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if c.class == "" {
				o.Ready = cancel // an empty file is a new store: the key that is there becomes its key
			}
			err := Run(ctx, o)
			if fault.ClassOf(err) != c.class && err != nil || c.class != "" && err == nil || c.says != "" && !strings.Contains(fmt.Sprint(err), c.says) {
				t.Fatalf("%s: %v", fault.ClassOf(err), err)
			}
			if c.class == "" {
				return
			}
			if now, _ := os.ReadFile(o.Instance.StateDB()); name != "a newer one" && string(now) != string(harmed) {
				t.Error("the store was changed")
			}
			for file, b := range kept {
				if err := errors.Join(os.WriteFile(file, b, 0o600), os.Chmod(file, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			for _, left := range []string{"-wal", "-shm"} {
				_ = os.Remove(o.Instance.StateDB() + left) // of the harmed one
			}
			client, _ = up(t, o)
			if a := ask(t, client, "what is the boiler code?"); !strings.Contains(a.Reply, "4711") {
				t.Errorf("put right: %+v", a)
			}
		})
	}
}

func newerSchema(o Options) error {
	d, err := db.Open(context.Background(), storeOptions(o))
	if err != nil {
		return err
	}
	err = d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
		return err
	})
	return errors.Join(err, d.Close())
}

func TestAConfigurationThatCannotWorkEndsBeforeTheSocket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, says string }{
		"a role wider than its parent": {"roles:\n  b:\n    parent: assistant\n    allow: [shell.exec]\n", "wider"},
		"a script that is not there":   {"models:\n  main: scripted//nowhere.yaml\n", "nowhere.yaml"},
		"a tool that is not there":     {"agents:\n  main:\n    tools: [fs.raed, \"nope.*\"]\n", "fs.read"},
		"a store of no kind":           {"store: \"mysql://x\"\n", ""},
		"a key that is not set":        {"models:\n  main: anthropic/x\n", "ANTHROPIC_API_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "a store of no kind" {
				if _, err := config.Load(config.Input{File: writeConfig(t, c.config)}); !fault.Is(err, fault.Config) {
					t.Errorf("%v", err)
				}
				return
			}
			o := options(t, c.config)
			err := Run(t.Context(), o)
			if !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", fault.ClassOf(err), err)
			}
			if _, err := os.Stat(o.Instance.Socket()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("there is a socket: %v", err)
			}
		})
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a client can send is answered with an error that has a class, and hurts
// nobody else.
// One read of the log gives a page; who asks for more gets more.
func TestEventsAreListedUpToTheLimit(t *testing.T) {
	t.Parallel()
	c, _ := up(t, options(t, ""))
	for i := range 40 {
		if _, err := c.MessageSend(t.Context(), wire.MessageSendRequest{Text: "help", Conversation: fmt.Sprint(i), Key: fmt.Sprint("k", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var res wire.EventsListResult
	for res.Head < 300 {
		var err error
		if res, err = c.EventsList(t.Context(), wire.EventsListRequest{Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	res, err := c.EventsList(t.Context(), wire.EventsListRequest{Limit: 300})
	if err != nil || len(res.Events) != 300 || res.Next != 300 {
		t.Errorf("%d events, next %d: %v", len(res.Events), res.Next, err)
	}
}

func TestWhatAClientSendsIsAnswered(t *testing.T) {
	t.Parallel()
	c, _ := up(t, options(t, ""))
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"an empty message": func() error { _, err := c.MessageSend(ctx, wire.MessageSendRequest{}); return err },
		"over 1 MiB": func() error {
			_, err := c.MessageSend(ctx, wire.MessageSendRequest{Text: strings.Repeat("x", 1<<20+1)})
			return err
		},
		"a decision of no kind": func() error {
			_, err := c.RunsResolve(ctx, wire.RunsResolveRequest{ID: "run_x", Decision: "maybe"})
			return err
		},
	} {
		if err := call(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %s: %v", name, fault.ClassOf(err), err)
		}
	}
	for name, call := range map[string]func() error{
		"no run":  func() error { _, err := c.RunsGet(ctx, wire.RunsGetRequest{ID: "run_x"}); return err },
		"no turn": func() error { _, err := c.TurnCancel(ctx, wire.TurnCancelRequest{RunID: "run_x"}); return err },
		"no approval": func() error {
			_, err := c.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: "apr_x", Decision: "approve"})
			return err
		},
		"no conversation": func() error {
			_, err := c.ConversationsReset(ctx, wire.ConversationsResetRequest{Conversation: "x"})
			return err
		},
		"no letter":    func() error { _, err := c.DLQReplay(ctx, wire.DLQReplayRequest{ID: "dead_x"}); return err },
		"nothing said": func() error { _, err := c.Explain(ctx, wire.ExplainRequest{ID: "last"}); return err },
		"no thing":     func() error { _, err := c.Explain(ctx, wire.ExplainRequest{ID: "evt_x"}); return err },
		"no key": func() error {
			_, err := c.ConfigExplain(ctx, wire.ConfigExplainRequest{Key: "turn.timeut"})
			return err
		},
		"no turn to watch": func() error {
			_, err := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: "run_x"}, func(wire.TurnNote) error { return nil })
			return err
		},
	} {
		if err := call(); !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %s: %v", name, fault.ClassOf(err), err)
		}
	}
	for _, name := range []string{"a\x00b", "\u202e", strings.Repeat("n", 5000), "main\n"} {
		got, err := c.MessageSend(ctx, wire.MessageSendRequest{Conversation: name, Text: "help", Wait: true})
		if err != nil && !fault.Is(err, fault.Invalid) || err == nil && got.Result.Outcome != "completed" {
			t.Errorf("a conversation %.20q: %+v, %v", name, got.Result, err)
		}
	}
	if a := ask(t, c, strings.Repeat("x", 1<<20)); a.Outcome != "completed" {
		t.Errorf("1 MiB: %+.200v", a)
	}
	if _, err := c.ConversationsList(ctx, wire.ConversationsListRequest{}); err != nil {
		t.Error(err)
	}
	if d, err := c.DoctorRun(ctx); err != nil || len(d.Checks) < 5 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.CostReport(ctx, wire.CostReportRequest{}); err != nil {
		t.Error(err)
	}
	if l, err := c.ToolsList(ctx); err != nil || len(l.Tools) < 10 {
		t.Errorf("%+v, %v", l, err)
	}
}
