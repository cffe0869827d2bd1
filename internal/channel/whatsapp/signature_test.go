package whatsapp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/channel/channeltest"
	"github.com/ombud-run/ombud/internal/channel/whatsapp/whatsapptest"
	"github.com/ombud-run/ombud/internal/fault"
)

// The digest is openssl's: printf '%s' "$body" | openssl dgst -sha256 -hmac "$key".
const (
	vectorKey    = "It's a Secret to Everybody"
	vectorBody   = "Hello, World!"
	vectorDigest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

func TestSignatures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header string
		keys   []string
		want   bool
	}{
		"right":               {"sha256=" + vectorDigest, []string{vectorKey}, true},
		"upper-case digits":   {"sha256=" + strings.ToUpper(vectorDigest), []string{vectorKey}, true},
		"the second key":      {"sha256=" + vectorDigest, []string{"old", vectorKey}, true},
		"the first key":       {"sha256=" + vectorDigest, []string{vectorKey, "new"}, true},
		"another key":         {"sha256=" + vectorDigest, []string{"old"}, false},
		"no key":              {"sha256=" + vectorDigest, nil, false},
		"missing":             {"", []string{vectorKey}, false},
		"no algorithm":        {vectorDigest, []string{vectorKey}, false},
		"another algorithm":   {"sha1=" + vectorDigest[:40], []string{vectorKey}, false},
		"algorithm shouted":   {"SHA256=" + vectorDigest, []string{vectorKey}, false},
		"one digit less":      {"sha256=" + vectorDigest[:63], []string{vectorKey}, false},
		"one byte less":       {"sha256=" + vectorDigest[:62], []string{vectorKey}, false},
		"one byte more":       {"sha256=" + vectorDigest + "00", []string{vectorKey}, false},
		"not hex":             {"sha256=" + strings.Repeat("g", 64), []string{vectorKey}, false},
		"another digest":      {"sha256=" + strings.Repeat("0", 64), []string{vectorKey}, false},
		"space before it":     {" sha256=" + vectorDigest, []string{vectorKey}, false},
		"signed by no secret": {whatsapptest.Sign("", []byte(vectorBody)), []string{""}, false},
	} {
		if got := signed(c.header, []byte(vectorBody), c.keys...); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// call makes a call to a hook and returns the status.
func call(h http.Handler, method, header, signature string, body []byte) int {
	r := httptest.NewRequest(method, "/", strings.NewReader(string(body)))
	if signature != "" {
		r.Header.Set(header, signature)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code
}

func TestACallWithoutASignatureIsNotEvenRead(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t)
	body := strings.NewReader("{}")
	rec := httptest.NewRecorder()
	a.Hook(channeltest.NewIntake()).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", body))
	if rec.Code != 401 || body.Len() != 2 {
		t.Errorf("%d, %d bytes are left", rec.Code, body.Len())
	}
}

func TestBothHooksTakeNothingThatIsNotSigned(t *testing.T) {
	t.Parallel()
	a, _, s := setup(t)
	c, _, cs, _ := setupCloud(t)
	for name, h := range map[string]struct {
		hook    func(*channeltest.Intake) http.Handler
		header  string
		secret  string
		part    string
		secrets *secrets
		body    []byte
		max     int
	}{
		"wacli": {func(in *channeltest.Intake) http.Handler { return a.Hook(in) }, "X-WACLI-Signature", secret, partSecret, s,
			whatsapptest.Event("incoming_message", whatsapptest.Ann, whatsapptest.From(whatsapptest.Ann, "A1", "hi", testTime)), maxHook},
		"cloud": {func(in *channeltest.Intake) http.Handler { return c.Hook(in) }, "X-Hub-Signature-256", whatsapptest.AppSecret, partApp, cs,
			new(whatsapptest.Notice).Text(customer, "wamid.1", "hi").Body(), maxCloudHook},
	} {
		in := channeltest.NewIntake()
		hook := h.hook(in)
		good := whatsapptest.Sign(h.secret, h.body)
		for what, want := range map[string]struct {
			method, signature string
			body              []byte
			status            int
		}{
			"not signed":        {"POST", "", h.body, 401},
			"by another secret": {"POST", whatsapptest.Sign("x", h.body), h.body, 401},
			"by no secret":      {"POST", whatsapptest.Sign("", h.body), h.body, 401},
			"another body":      {"POST", good, append([]byte(" "), h.body...), 401},
			"a body cut off":    {"POST", good, h.body[:len(h.body)-1], 401},
			"too long":          {"POST", good, make([]byte, h.max+1), 413},
			"another method":    {"PUT", good, h.body, 405},
			"not JSON":          {"POST", whatsapptest.Sign(h.secret, []byte("{")), []byte("{"), 400},
		} {
			if got := call(hook, want.method, h.header, want.signature, want.body); got != want.status {
				t.Errorf("%s, %s: %d, want %d", name, what, got, want.status)
			}
		}
		h.secrets.mu.Lock()
		h.secrets.fail = fault.New(fault.Unavailable, "the store is away")
		h.secrets.mu.Unlock()
		if got := call(hook, "POST", h.header, good, h.body); got != 503 {
			t.Errorf("%s, the secret cannot be read: %d", name, got)
		}
		h.secrets.mu.Lock()
		h.secrets.fail = nil
		delete(h.secrets.all, h.part)
		h.secrets.mu.Unlock()
		if got := call(hook, "POST", h.header, good, h.body); got != 401 {
			t.Errorf("%s, no secret is set: %d", name, got)
		}
		if got := in.Now(); len(got.Taken) != 0 || got.Again != 0 {
			t.Errorf("%s took %+v", name, got.Taken)
		}
		h.secrets.set(h.part, h.secret)
		if got := call(hook, "POST", h.header, good, h.body); got != 200 || len(in.Now().Taken) != 1 {
			t.Errorf("%s, as it should be: %d, %+v", name, got, in.Now().Taken)
		}
	}
}
