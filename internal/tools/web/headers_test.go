package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

const sekret = "s3kr3t-value-0001"

// withSecrets is setup with secrets that are set: name → hosts.
func withSecrets(t *testing.T, set map[string][]string) *bench {
	t.Helper()
	b := setup(t)
	d := dbtest.SQLite(t)
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	chain := audit.New(d, v, "test", quiet)
	if err := chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := secret.New(d, v, eventlog.NewLog(d, v, quiet, eventlog.Options{}), chain, redact.New())
	for name, hosts := range set {
		value := []byte(sekret)
		if name == "lines" {
			value = []byte("two\nlines: of it")
		}
		if _, err := kept.Set(t.Context(), secret.Setting{Name: name, Value: value, Hosts: hosts}, secret.ByOperator); err != nil {
			t.Fatal(err)
		}
	}
	b.reg, b.inv = tool.NewRegistry(quiet)
	if err := New(b.client, "ombud/test", kept).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) fetchWith(target string, headers map[string]string, deny ...string) (tool.Output, error) {
	b.t.Helper()
	in, err := json.Marshal(map[string]any{"url": target, "headers": headers})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.reg.Validate("web.fetch", in); err != nil {
		b.t.Fatal(err)
	}
	def, err := b.reg.Get("web.fetch")
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := def.Scopes(in); err != nil {
		return tool.Output{}, err
	}
	return b.inv.Call(b.t.Context(), "web.fetch", tool.Invocation{Input: in, Permit: func(_ context.Context, need scope.Scope) error {
		for _, d := range deny {
			if scope.Must(d).Covers(need) {
				return fault.New(fault.Denied, "no grant for %s", need)
			}
		}
		return nil
	}})
}

// seen notes the headers of every request.
type seen struct {
	mu   sync.Mutex
	list []string
}

func (s *seen) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Key"))
}

func (s *seen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.list, "\n")
}

func TestASecretInAHeaderGoesToItsHostOnly(t *testing.T) {
	t.Parallel()
	b := withSecrets(t, map[string][]string{"api": {"127.0.0.1"}, "far": {"api.example.com"}, "loose": nil, "lines": {"127.0.0.1"}})
	var home seen
	at := b.serve(func(_ http.ResponseWriter, r *http.Request) { home.note(r) })
	if _, err := b.fetchWith(at+"/a", map[string]string{"authorization": "Bearer {{secret:api}}", "X-Key": "plain"}); err != nil {
		t.Fatal(err)
	}
	if got := home.all(); got != "/a Bearer "+sekret+" plain" {
		t.Errorf("it was sent %q", got)
	}
	for name, c := range map[string]struct {
		header, deny string
		class        fault.Class
		hint         string
	}{
		"another host":   {"{{secret:far}}", "", fault.Denied, "--host"},
		"bound to none":  {"{{secret:loose}}", "", fault.Denied, "ombud secret set loose --host 127.0.0.1"},
		"missing":        {"{{secret:none}}", "", fault.NotFound, "ombud secret set none"},
		"several lines":  {"{{secret:lines}}", "", fault.Invalid, ""},
		"no leave":       {"{{secret:api}}", "secret:api", fault.Denied, ""},
		"half a name":    {"{{secret:api", "", fault.Invalid, ""},
		"no name at all": {"{{secret:A B}}", "", fault.Invalid, ""},
	} {
		var deny []string
		if c.deny != "" {
			deny = append(deny, c.deny)
		}
		_, err := b.fetchWith(at+"/x", map[string]string{"X-Key": c.header}, deny...)
		if !fault.Is(err, c.class) || !strings.Contains(fault.HintOf(err), c.hint) || strings.Contains(fmt.Sprint(err), sekret) {
			t.Errorf("%s: %s %v, hint %q", name, fault.ClassOf(err), err, fault.HintOf(err))
		}
	}
	if strings.Contains(home.all(), "/x") {
		t.Errorf("something was sent all the same: %s", home.all())
	}
}

func TestNoHeaderOfACallFollowsARedirectElsewhere(t *testing.T) {
	t.Parallel()
	b := withSecrets(t, map[string][]string{"api": {"127.0.0.1"}})
	var home, away seen
	var homeURL, awayURL string
	homeURL = b.serve(func(w http.ResponseWriter, r *http.Request) {
		home.note(r)
		switch r.URL.Path {
		case "/near":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/far":
			http.Redirect(w, r, awayURL+"/away", http.StatusFound)
		}
	})
	awayURL = b.serve(func(w http.ResponseWriter, r *http.Request) {
		away.note(r)
		http.Redirect(w, r, homeURL+"/back", http.StatusFound)
	})
	h := map[string]string{"Authorization": "Bearer {{secret:api}}", "X-Key": "{{secret:api}}"}
	for _, path := range []string{"/near", "/far"} {
		out, err := b.fetchWith(homeURL+path, h)
		if err != nil || strings.Contains(out.Text, sekret) {
			t.Fatalf("%s, %v", out.Text, err)
		}
	}
	with := " Bearer " + sekret + " " + sekret
	if got, want := home.all(), "/near"+with+"\n/end"+with+"\n/far"+with+"\n/back  "; got != want {
		t.Errorf("at home\n%s, want\n%s", got, want)
	}
	if got := away.all(); got != "/away  " {
		t.Errorf("away %q", got)
	}
}

func TestHeadersThatACallCannotSet(t *testing.T) {
	t.Parallel()
	b := withSecrets(t, nil)
	at := b.page("text/plain", "ok")
	for name, value := range map[string]string{
		"Host": "evil.example", "content-length": "5", "X A": "v", "X-A": "a\r\nX-B: b", "": "v", "user-agent": "me", "Proxy-Authorization": "x", "X:Y": "v",
	} {
		if _, err := b.fetchWith(at, map[string]string{name: value}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.fetchWith(at, map[string]string{"x-a": "1", "X-A": "2"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("twice: %v", err)
	}
}

func TestWhatACallWithHeadersNeedsAndTells(t *testing.T) {
	t.Parallel()
	b := setup(t)
	def, err := b.reg.Get("web.fetch")
	if err != nil {
		t.Fatal(err)
	}
	in := json.RawMessage(`{"url":"https://api.example.com/x","headers":{"X-B":"{{secret:b}}{{secret:a}}","Accept":"{{secret:a}}"}}`)
	got, err := def.Scopes(in)
	if err != nil || fmt.Sprint(got) != "[net.fetch:https://api.example.com/x secret:a secret:b]" {
		t.Errorf("%v, %v", got, err)
	}
	if s := def.Summary(in); !strings.Contains(s, "{{secret:b}}{{secret:a}}") || !strings.Contains(s, "X-B") {
		t.Errorf("summary %s", s)
	}
	// What a header says is not what the operator wrote word for word.
	if d := def.Destination(in); d.Sends != "" || d.Nobody {
		t.Errorf("%+v", d)
	}
	if d := def.Destination(json.RawMessage(`{"url":"https://api.example.com/x"}`)); d.Sends == "" {
		t.Errorf("%+v", d)
	}
}

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{
		"https://a.example/x": true, "https://A.example:443/": true, "http://a.example/": false, "https://a.example:8443/": false, "https://b.example/": false,
	} {
		u, err := url.Parse(other)
		if err != nil {
			t.Fatal(err)
		}
		if home, _ := url.Parse("https://a.example/"); sameOrigin(u, home) != same {
			t.Errorf("%s: %v", other, !same)
		}
	}
}
