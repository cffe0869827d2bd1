package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/wire"
)

// unheard turns the network listener off where a configuration says nothing of it: the
// default port is one for all tests.
func unheard(text string) []config.Override {
	if strings.Contains(text, "listen:") {
		return nil
	}
	return []config.Override{{Flag: "--listen", Key: "listen.address", Value: config.Off}}
}

// heard is a daemon with a listener, and what it is asked.
type heard struct {
	t    *testing.T
	d    *Daemon
	addr string
}

func listen(t *testing.T) *heard {
	t.Helper()
	o := options(t, "listen: {address: '127.0.0.1:0'}\n")
	d, err := open(t.Context(), o, turn{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &heard{t, d, d.listener.State().Address}
}

func (h *heard) do(method, path, body string, head ...string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.addr+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// target lets a paused target be called at a path.
func (h *heard) target(path, secret string) {
	h.t.Helper()
	err := h.d.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return h.d.triggers.ReplaceTx(ctx, tx, "test", []trigger.Target{{
			Name: "test:x", RunKind: "turn", Paused: true, On: []trigger.On{{Webhook: &trigger.Webhook{Path: path, Scheme: trigger.GitHub, Secrets: []string{secret}}}},
		}})
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func signature(secret, body string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

func TestADaemonListensAndShowsIt(t *testing.T) {
	t.Parallel()
	h := listen(t)
	c := wire.NewClient(h.d.o.Instance.Socket())
	if s, err := c.SystemStatus(t.Context()); err != nil || fmt.Sprint(s.Listeners) != fmt.Sprint([]string{h.d.o.Instance.Socket(), h.d.o.Instance.AgentSocket(), h.addr}) {
		t.Errorf("status says it listens on %v, %v", s.Listeners, err)
	}
	if _, err := c.SecretSet(t.Context(), wire.SecretSetRequest{Name: "gh", Value: []byte("a secret of GitHub's")}); err != nil {
		t.Fatal(err)
	}
	h.target("gh", "gh")
	for _, q := range []struct {
		method, path, body string
		head               []string
		status             int
		want               string
	}{
		{"GET", "/health", "", nil, 200, `{"status":"ok"}`},
		{"GET", "/ready", "", nil, 200, `{"ready":true}`},
		{"POST", "/hooks/gh", "{}", []string{"X-Hub-Signature-256", signature("a secret of GitHub's", "{}")}, 200, `"status":"accepted"`},
		{"POST", "/hooks/gh", "{}", []string{"X-Hub-Signature-256", signature("a secret of GitHub's", "{}")}, 200, `"status":"duplicate"`},
		{"POST", "/hooks/gh", "{}", []string{"X-Hub-Signature-256", signature("another", "{}")}, 401, `{"error":{"class":"denied"`},
		{"POST", "/hooks/no", "{}", nil, 404, `{"error":{"class":"not_found"`},
		{"GET", "/metrics", "", nil, 200, `ombud_webhooks_total{route="gh",outcome="refused"} 1`},
		{"GET", "/metrics", "", []string{"X-Forwarded-For", "1.2.3.4"}, 401, `denied`},
		{"GET", "/ready", "", []string{"Origin", "http://evil.example"}, 403, `denied`},
		{"GET", "/", "", nil, 404, `not_found`},
	} {
		if status, text := h.do(q.method, q.path, q.body, q.head...); status != q.status || !strings.Contains(text, q.want) {
			t.Errorf("%s %s is answered %d %s, want %d %s", q.method, q.path, status, text, q.status, q.want)
		}
	}
	checks, err := c.DoctorRun(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(checks), "it listens on "+h.addr) {
		t.Errorf("doctor: %v, %v", checks, err)
	}
}

func TestAChosenPortThatIsTakenKeepsTheDaemonFromStarting(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	o := options(t, "listen: {address: '"+ln.Addr().String()+"'}\n")
	if err := Run(t.Context(), o); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), ln.Addr().String()) || fault.HintOf(err) == "" {
		t.Errorf("got %v (%s)", err, fault.HintOf(err))
	}
}

// A token that is also the secret of a webhook was only warned of elsewhere: oc#20809.
func TestAnAdminTokenIsNoSecretOfAWebhookAndNotShort(t *testing.T) {
	t.Parallel()
	h := listen(t)
	c := wire.NewClient(h.d.o.Instance.Socket())
	for name, value := range map[string]string{"gh": "one and the same secret", "same": "one and the same secret", "short": "sesame", "good": "0123456789abcdef0123456789abcdef"} {
		if _, err := c.SecretSet(t.Context(), wire.SecretSetRequest{Name: name, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	h.target("gh", "gh")
	for name, ok := range map[string]bool{"same": false, "short": false, "good": true, "absent": true} {
		h.d.o.Config.Config.Listen.AdminToken = name
		if err := h.d.checkAdminToken(t.Context()); (err == nil) != ok || err != nil && !fault.Is(err, fault.Config) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.d.o.Config.Config.Listen.AdminToken = "short" // set since the start
	if h.d.isAdmin(t.Context(), "sesame") {
		t.Error("a short token lets somebody in")
	}
	if all := fmt.Sprint(h.d.checkListener(t.Context())); !strings.Contains(all, "listener.admin fail") || !strings.Contains(all, "fewer than 16") {
		t.Errorf("doctor says %s", all)
	}
	h.d.o.Config.Config.Listen.AdminToken = "good"
	if !h.d.isAdmin(t.Context(), "0123456789abcdef0123456789abcdef") || h.d.isAdmin(t.Context(), "one and the same secret") || h.d.isAdmin(t.Context(), "") {
		t.Error("the token is not told from others")
	}
}

// A sender that is told of nothing here does not come again.
func TestAStandbyHasWebhooksSentAgain(t *testing.T) {
	t.Parallel()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	stop, err := newStandby(options(t, "listen: {address: '"+addr+"'}\n")).listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{t: t, addr: addr}
	if status, body := h.do(http.MethodPost, "/hooks/deploy", "{}"); status != http.StatusServiceUnavailable || !strings.Contains(body, "unavailable") {
		t.Errorf("a webhook was answered %d %s", status, body)
	}
	if status, _ := h.do(http.MethodGet, "/elsewhere", ""); status != http.StatusNotFound {
		t.Errorf("what is not there was answered %d", status)
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}
