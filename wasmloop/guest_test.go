package wasmloop

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// compiled keeps compiled modules for all tests of this process.
var compiled string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wasmloop-test-")
	if err != nil {
		panic(err)
	}
	compiled = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// builds compiles a guest once.
var builds sync.Map

func built(t testing.TB, name string) []byte {
	t.Helper()
	once, _ := builds.LoadOrStore(name, sync.OnceValues(func() ([]byte, error) {
		out := filepath.Join(compiled, name+".wasm")
		cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, "main.go")
		cmd.Dir = filepath.Join("testdata", "guests", name)
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the guest %s: %w: %s", name, err, text)
		}
		return os.ReadFile(out)
	}))
	module, err := once.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// bench is a runner of a guest, with what the guest said and what it did.
type guestBench struct {
	*Runner
	kit  *fakeKit
	said *lines
}

// step is one of the scripted guest's.
type step struct {
	Do   string `json:"do"`
	Name string `json:"name,omitempty"`
	Req  string `json:"req,omitempty"`
	Cap  int    `json:"cap,omitempty"`
	N    int    `json:"n,omitempty"`
}

// steps is the payload that tells the scripted guest what to do.
func steps(s ...step) map[string]any { return map[string]any{"steps": s} }

// run has the scripted guest do the steps, and returns what it logged.
func (b *guestBench) run(t *testing.T, do ...step) ([]string, error) {
	t.Helper()
	b.said.take()
	err := b.RunTriggered(t.Context(), time.Minute, "event", steps(do...))
	return b.said.take(), err
}

func call(name, req string) step {
	return step{Do: "call", Name: name, Req: req, Cap: 32 << 10}
}

// guest makes a runner of the scripted guest: everything is declared and granted, but for
// what change takes away.
func guest(t testing.TB, change func(*Manifest, *Options)) *guestBench {
	t.Helper()
	return guestOf(t, built(t, "scripted"), change)
}

func guestOf(t testing.TB, module []byte, change func(*Manifest, *Options)) *guestBench {
	t.Helper()
	b, err := newGuest(t, module, change)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newGuest(t testing.TB, module []byte, change func(*Manifest, *Options)) (*guestBench, error) {
	t.Helper()
	m := Manifest{
		Name: "guest", Version: "1", Tools: []string{"calendar.add"}, SHA256: digest(module),
		Capabilities: []string{"http:api.example.com", "memory:nexus"},
		Provides:     []ToolSpec{{Name: "look"}, {Name: "json"}},
	}
	for fn := range reach {
		m.Host = append(m.Host, fn)
	}
	b := &guestBench{kit: &fakeKit{}, said: &lines{}}
	o := Options{Namespace: "main", Kit: b.kit, Grants: all{}, Log: slog.New(b.said), CacheDir: compiled}
	if change != nil {
		change(&m, &o)
	}
	r, err := NewRunner(t.Context(), &Artifact{Manifest: m, Module: module}, o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.Runner = r
	return b, nil
}

// all allows everything.
type all struct{}

func (all) Allow(context.Context, string, string) error { return nil }

// only allows what it lists, as class:value.
type only []string

func (o only) Allow(_ context.Context, class, value string) error {
	if !slices.Contains(o, class+":"+value) {
		return fmt.Errorf("%w: %s:%s is not granted", ErrRefused, class, value)
	}
	return nil
}

// lines is a log handler that keeps what a loop says.
type lines struct {
	mu   sync.Mutex
	text []string
	warn []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "text":
			l.text = append(l.text, a.Value.String())
		case "error":
			l.warn = append(l.warn, a.Value.String())
		}
		return true
	})
	return nil
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.text
	l.text = nil
	return out
}

// fakeKit writes down what it is asked to do.
type fakeKit struct {
	mu     sync.Mutex
	did    []string
	answer string
	err    error
	onAsk  func(ctx context.Context) string
}

func (k *fakeKit) note(format string, args ...any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.did = append(k.did, fmt.Sprintf(format, args...))
	return k.err
}

func (k *fakeKit) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := strings.Join(k.did, "; ")
	k.did = nil
	return out
}

func (k *fakeKit) Recall(q string, n int) ([]string, error) {
	return []string{"hit"}, k.note("recall %s %d", q, n)
}
func (k *fakeKit) Remember(f string) error      { return k.note("remember %s", f) }
func (k *fakeKit) Notify(t, b string) error     { return k.note("notify %s %s", t, b) }
func (k *fakeKit) Config(key string) string     { return "set:" + key }
func (k *fakeKit) HostTool(n string) string     { return "/bin/" + n }
func (k *fakeKit) RunLoop(n string) error       { return k.note("run %s", n) }
func (k *fakeKit) OperatorChats() []string      { return nil }
func (k *fakeKit) Remind(t, d, n string) error  { return k.note("remind %s %s %s", t, d, n) }
func (k *fakeKit) Propose(t, s, a string) error { return k.note("propose %s %s %s", t, s, a) }
func (k *fakeKit) Ask(ctx context.Context, p string) (string, error) {
	err := k.note("ask %s", p)
	if k.onAsk != nil {
		return k.onAsk(ctx), err
	}
	return k.answer, err
}

func (k *fakeKit) HTTP(_ context.Context, method, url string, h map[string]string, body string) (string, int, error) {
	return "body", 201, k.note("http %s %s %v %s", method, url, h, body)
}
func (k *fakeKit) Harness(_ context.Context, p string) (string, error) {
	return "h", k.note("harness %s", p)
}
func (k *fakeKit) Gateway(_ context.Context, p string, lend ...string) (string, error) {
	return "g", k.note("gateway %s %v", p, lend)
}
func (k *fakeKit) Summarize(_ context.Context, p string) (string, error) {
	return "s", k.note("summarize %s", p)
}
func (k *fakeKit) Tool(_ context.Context, n string, in map[string]any) (string, error) {
	return "out", k.note("tool %s %v", n, in)
}
func (k *fakeKit) ShortSet(g, key, v string, ttl int) error {
	return k.note("set %s %s %s %d", g, key, v, ttl)
}
func (k *fakeKit) ShortGet(g, key string) (string, bool, error) {
	return "v", true, k.note("get %s %s", g, key)
}
func (k *fakeKit) ShortAll(g string) ([]ShortMemory, error) {
	return []ShortMemory{{Key: "k", Value: "v"}}, k.note("all %s", g)
}
func (k *fakeKit) ShortForget(g, key string) error { return k.note("forget %s %s", g, key) }
func (k *fakeKit) ChatSummary(jid string) (*ChatSummary, error) {
	return &ChatSummary{ChatJID: jid, Status: "hot"}, k.note("chat %s", jid)
}
func (k *fakeKit) SaveChatSummary(s ChatSummary) error {
	return k.note("save %s %d", s.ChatJID, s.OwnMessageCount)
}

var _ Kit = (*fakeKit)(nil)
