package trigger

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/secret"
)

func hook(w Webhook) On { return On{Webhook: &w} }

func (h *house) setSecret(name, value string) {
	h.t.Helper()
	if _, err := h.secrets.Set(h.t.Context(), secret.Setting{Name: name, Value: []byte(value)}, secret.ByOperator); err != nil {
		h.t.Fatal(err)
	}
}

// said is an answer.
type said struct {
	code       int
	Status, ID string
	Error      problem
	head       http.Header
	text       string
}

// call calls a webhook.
func (h *house) call(path, body string, head http.Header) said {
	h.t.Helper()
	return h.do(httptest.NewRequest(http.MethodPost, HooksPath+path, strings.NewReader(body)), head)
}

func (h *house) do(r *http.Request, head http.Header) said {
	h.t.Helper()
	for k, v := range head {
		r.Header[k] = v
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	out := said{code: rec.Code, head: rec.Header(), text: rec.Body.String()}
	if strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
			h.t.Fatalf("%s: %v", rec.Body, err)
		}
	}
	return out
}

func github(body, id string) http.Header {
	return header("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sign([]byte(githubSecret), body)), "X-GitHub-Delivery", id, "Content-Type", "application/json")
}

func (h *house) wantCode(got said, want int) {
	h.t.Helper()
	if got.code != want {
		h.t.Errorf("answered %d (%s), want %d", got.code, strings.TrimSpace(got.text), want)
	}
}

func (h *house) route(path string) Route {
	h.t.Helper()
	list, err := h.Routes(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list {
		if r.Path == path {
			return r
		}
	}
	h.t.Fatalf("no route %s", path)
	return Route{}
}

func TestAWebhookIsARowAnEventAndARunBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.setSecret("gh", githubSecret)
		h.replace(on("x", hook(Webhook{Path: "/hooks/git/push", Scheme: GitHub, Secrets: []string{"gh"}})))
		got := h.call("git/push", `{"ref":"main"}`, github(`{"ref":"main"}`, "d1")) // nothing runs yet
		h.wantCode(got, 200)
		if got.Status != "accepted" || !strings.HasPrefix(got.ID, "hook_") {
			t.Errorf("answered %+v", got)
		}
		e, err := h.log.Last(t.Context(), "webhook:git/push", KindHook)
		if err != nil {
			t.Fatal(err)
		}
		h.live()
		h.until(func() bool { return len(h.works()) == 1 })
		tr := h.works()[0]
		if tr.Kind != ByWebhook || tr.Name != "git/push" || tr.Event != e.ID || tr.value("json.ref") != "main" || tr.value("headers.X-Github-Delivery") != "d1" {
			t.Errorf("the trigger is %+v", tr)
		}
		if tr.value("webhook_id") != got.ID || tr.value("body") != `{"ref":"main"}` || strings.Contains(string(tr.Payload), "sha256=") {
			t.Errorf("the payload is %s", tr.Payload)
		}
		if !tr.Label.Tainted() || tr.Label.Sources[0] != "untrusted:webhook:git/push" {
			t.Errorf("the label is %s", tr.Label)
		}
		if r := h.route("git/push"); r.Accepted != 1 || r.SeenAt == 0 || r.Target != "loop:x" {
			t.Errorf("the route is %+v", r)
		}
	})
}

func TestACallIsTakenOnceWhateverItsIDSays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.setSecret("gh", githubSecret)
		h.setSecret("sw", standardSecret)
		h.setSecret("sl", slackSecret)
		h.replace(
			on("gh", hook(Webhook{Path: "gh", Scheme: GitHub, Secrets: []string{"gh"}})),
			on("sw", hook(Webhook{Path: "sw", Scheme: Standard, Secrets: []string{"sw"}})),
			on("sl", hook(Webhook{Path: "sl", Scheme: Slack, Secrets: []string{"sl"}})),
			on("other", hook(Webhook{Path: "other", Scheme: GitHub, Secrets: []string{"gh"}})),
			on("open", hook(Webhook{Path: "open", Scheme: Open, IDHeader: "X-Id"})),
		)
		h.live()
		first := h.call("gh", "a", github("a", "1"))
		h.wantCode(first, 200)
		again := h.call("gh", "a", github("a", "1"))
		h.wantCode(again, 200)
		if again.Status != "duplicate" || again.ID != first.ID {
			t.Errorf("a redelivery is answered %+v", again)
		}
		h.wantCode(h.call("gh", "b", github("b", "1")), 409) // the id with another body
		h.wantCode(h.call("gh", "a", github("a", "2")), 409) // the body, replayed with an id nobody signed
		h.wantCode(h.call("gh", "a", header("X-Hub-Signature-256", github("a", "").Get("X-Hub-Signature-256"))), 409)
		h.wantCode(h.call("other", "a", github("a", "1")), 200) // a route of its own

		standard := func(id, body string) http.Header {
			at := fmt.Sprint(time.Now().Unix())
			return header("webhook-id", id, "webhook-timestamp", at, "webhook-signature",
				"v1,"+b64(sign(keysOf(t, Standard, standardSecret)[0], id, ".", at, ".", body)))
		}
		h.wantCode(h.call("sw", "a", standard("1", "a")), 200)
		if got := h.call("sw", "a", standard("1", "a")); got.Status != "duplicate" {
			t.Errorf("a redelivery is answered %+v", got)
		}
		h.wantCode(h.call("sw", "b", standard("1", "b")), 409)
		if got := h.call("sw", "a", standard("2", "a")); got.Status != "accepted" { // signed: it is another
			t.Errorf("another call is answered %+v", got)
		}

		slack := func(off int64, body string) http.Header {
			at := fmt.Sprint(time.Now().Unix() + off)
			return header("X-Slack-Request-Timestamp", at, "X-Slack-Signature", "v0="+hex.EncodeToString(sign([]byte(slackSecret), "v0:", at, ":", body)))
		}
		h.wantCode(h.call("sl", `{"event_id":"1"}`, slack(0, `{"event_id":"1"}`)), 200)
		if got := h.call("sl", `{"event_id":"1"}`, slack(60, `{"event_id":"1"}`)); got.Status != "duplicate" { // Slack tries again with another time
			t.Errorf("a retry is answered %+v", got)
		}
		if got := h.call("sl", `{"type":"url_verification","challenge":"c4"}`, slack(0, `{"type":"url_verification","challenge":"c4"}`)); got.text != "c4" {
			t.Errorf("the challenge is answered %+v", got)
		}

		h.wantCode(h.call("open", "a", nil), 200)
		if got := h.call("open", "a", nil); got.Status != "accepted" {
			t.Errorf("an open route is answered %+v", got)
		}
		h.wantCode(h.call("open", "a", header("X-Id", "1")), 200)
		if got := h.call("open", "a", header("X-Id", "1")); got.Status != "duplicate" {
			t.Errorf("an open route with an id is answered %+v", got)
		}

		h.settled()
		count := map[string]int{}
		for _, tr := range h.works() {
			count[tr.Target]++
		}
		if want := (map[string]int{"loop:gh": 1, "loop:sw": 2, "loop:sl": 1, "loop:other": 1, "loop:open": 3}); fmt.Sprint(count) != fmt.Sprint(want) {
			t.Errorf("runs %v, want %v", count, want)
		}
		if r := h.route("gh"); r.Accepted != 1 || r.Repeated != 1 || r.Refused != 3 || r.Refusal == "" {
			t.Errorf("the route is %+v", r)
		}
	})
}

func b64(b []byte) string { return strings.TrimSpace(string(mustJSON(b))[1 : len(mustJSON(b))-1]) }

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// One update, delivered fifty times at once: oc#33511.
func TestFiftyDeliveriesAtOnceStartOneRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.setSecret("gh", githubSecret)
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: GitHub, Secrets: []string{"gh"}})))
		h.live()
		var wg sync.WaitGroup
		got := make([]said, 51)
		for i := range got {
			wg.Go(func() { got[i] = h.call("x", "a", github("a", "1")) })
		}
		wg.Wait()
		accepted := 0
		for _, s := range got {
			h.wantCode(s, 200)
			if s.Status == "accepted" {
				accepted++
			}
		}
		h.settled()
		if accepted != 1 || len(h.works()) != 1 {
			t.Errorf("%d accepted, %d runs", accepted, len(h.works()))
		}
	})
}

// A body may come again after the time it is remembered for, where nothing else tells calls apart.
func TestABodyThatIsForgottenIsTakenAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.setSecret("k", "s3cret")
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: Generic, Secrets: []string{"k"}})))
		head := header("X-Signature-256", hex.EncodeToString(sign([]byte("s3cret"), "open")))
		h.wantCode(h.call("x", "open", head), 200)
		if got := h.call("x", "open", head); got.Status != "duplicate" {
			t.Errorf("answered %+v", got)
		}
		h.exec("UPDATE hooks SET at = at - $1", remembered.Microseconds()+1)
		if err := h.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.call("x", "open", head); got.Status != "accepted" {
			t.Errorf("answered %+v", got)
		}
	})
}

func TestWhatIsNoGoodCallIsRefusedAndStartsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.setSecret("gh", githubSecret)
		h.replace(
			on("x", hook(Webhook{Path: "x", Scheme: GitHub, Secrets: []string{"gh"}})),
			on("none", hook(Webhook{Path: "none", Scheme: GitHub, Secrets: []string{"absent"}})),
			on("rare", hook(Webhook{Path: "rare", Scheme: Open})),
		)
		h.opt.PerMinute = 2
		long := strings.Repeat("a", maxBody+1)
		req := func(method, path string, body io.Reader) *http.Request {
			return httptest.NewRequest(method, path, body)
		}
		unknown := h.do(req("POST", "/hooks/y", nil), nil)
		h.wantCode(unknown, 404)
		for _, path := range []string{"/hooks/", "/hooks/x/y", "/hooks/x/", "/hooks/X", "/hooks/..", "/hooks/" + strings.Repeat("a", 200)} {
			if got := h.do(req("POST", path, nil), nil); got.code != 404 || got.text != unknown.text {
				t.Errorf("%s is answered %d %s", path, got.code, got.text)
			}
		}
		get := h.do(req("GET", "/hooks/x", nil), nil)
		h.wantCode(get, 405)
		if get.head.Get("Allow") != "POST" {
			t.Error("405 does not say what is allowed")
		}
		h.wantCode(h.call("x", "a", nil), 401)
		h.wantCode(h.call("x", "a", github("b", "1")), 401)
		h.wantCode(h.call("x", "a", header("X-Hub-Signature-256", "sha256=é")), 401)
		zipped := github("a", "1")
		zipped.Set("Content-Encoding", "gzip")
		h.wantCode(h.call("x", "a", zipped), 415)
		h.wantCode(h.call("x", long, github(long, "1")), 413)
		unsized := req("POST", "/hooks/x", io.MultiReader(strings.NewReader(long[:maxBody]), strings.NewReader("a")))
		unsized.ContentLength = -1
		h.wantCode(h.do(unsized, github(long, "1")), 413)
		missing := h.call("none", "a", github("a", "1"))
		h.wantCode(missing, 503)
		if missing.head.Get("Retry-After") == "" {
			t.Error("503 does not say when to try again")
		}
		for i, want := range []int{200, 200, 429} {
			if got := h.call("rare", fmt.Sprint(i), nil); got.code != want || (want == 429) != (got.head.Get("Retry-After") != "") {
				t.Errorf("call %d is answered %d %v", i, got.code, got.head)
			}
		}
		h.held = fault.New(fault.Unavailable, "held")
		h.wantCode(h.call("x", "a", github("a", "1")), 503)
		h.held = nil
		h.wantCode(h.call("x", "a", github("a", "1")), 200)
		r := h.route("x")
		if r.Accepted != 1 || r.Refused != 8 || r.Refusal != "nothing is taken now" {
			t.Errorf("the route is %+v", r)
		}
		if r := h.route("none"); len(r.Missing) != 1 || !strings.Contains(r.Refusal, "secrets") {
			t.Errorf("the route without its secret is %+v", r)
		}
	})
}

// limitless is a body without an end that counts what was read of it.
type limitless struct{ read int }

func (l *limitless) Read(p []byte) (int, error) {
	l.read += len(p)
	return copy(p, bytes.Repeat([]byte("a"), len(p))), nil
}

func TestALargeBodyIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: Open})))
		for _, length := range []int64{20 << 20, -1} {
			var body limitless
			r := httptest.NewRequest(http.MethodPost, "/hooks/x", &body)
			r.ContentLength = length
			h.wantCode(h.do(r, nil), 413)
			if body.read > 2<<20 {
				t.Errorf("%d bytes were read of a body of %d", body.read, length)
			}
		}
		if h.room.used != 0 {
			t.Errorf("%d bytes are held for nothing", h.room.used)
		}
	})
}

func TestAPausedTargetsCallIsKeptAndStartsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		x := on("x", hook(Webhook{Path: "x", Scheme: Open}))
		x.Paused = true
		h.replace(x)
		h.live()
		h.wantCode(h.call("x", "a", nil), 200)
		h.settled()
		if s := h.standing(); s.Withheld != 1 || len(h.works()) != 0 {
			t.Errorf("withheld %d, runs %d", s.Withheld, len(h.works()))
		}
	})
}

func TestTwoTargetsOnOnePathAreRefusedWithBothNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		open := hook(Webhook{Path: "x", Scheme: Open})
		h.replace(on("a", open))
		for name, err := range map[string]error{
			"loop:b":   h.tryReplace("loop", on("a", open), on("b", open)),
			"recipe:c": h.tryReplace("recipe", Target{Name: "recipe:c", RunKind: workKind, On: []On{open}}),
		} {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "loop:a") || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "/hooks/x") {
				t.Errorf("got %v", err)
			}
		}
		h.replace(on("b", open)) // it may move
		h.wantCode(h.call("x", "", nil), 200)
		if r := h.route("x"); r.Target != "loop:b" {
			t.Errorf("the route is %+v", r)
		}
		h.replace()
		h.wantCode(h.call("x", "", nil), 404)
		for want, w := range map[string]Webhook{
			"no path":          {Path: "../x", Scheme: Open},
			"no scheme":        {Path: "y", Scheme: "hmac"},
			"nobody asks":      {Path: "y", Scheme: Open, Secrets: []string{"k"}},
			"prove who calls":  {Path: "y", Scheme: GitHub},
			"name of a secret": {Path: "y", Scheme: GitHub, Secrets: []string{"Not A Name"}},
			"says itself":      {Path: "y", Scheme: GitHub, Secrets: []string{"k"}, Header: "X"},
			"name of a header": {Path: "y", Scheme: Generic, Secrets: []string{"k"}, Header: "X Sig"},
		} {
			if err := h.tryReplace("loop", on("a", hook(w))); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	})
}

func TestHeadersThatLetInOrProveAreNotKept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: Open})))
		h.live()
		head := header("X-Event", "kept", "User-Agent", "kept")
		for _, name := range []string{
			"Authorization", "Proxy-Authorization", "X-Auth-Key", "Cookie", "Set-Cookie", "X-Hub-Signature", "X-Signature-256", "Stripe-Signature",
			"X-Shopify-Hmac-Sha256", "X-Gitlab-Token", "X-Secret", "X-Password", "X-Apikey", "X-Api-Key", "X-Vault-Credential",
		} {
			head.Set(name, "hidden")
		}
		h.wantCode(h.call("x", "a", head), 200)
		h.until(func() bool { return len(h.works()) == 1 })
		text := string(h.works()[0].Payload)
		if strings.Contains(text, "hidden") || strings.Count(text, "kept") != 2 {
			t.Errorf("the payload is %s", text)
		}
	})
}

func TestBytesThatAreNoTextAreKept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: Open})))
		h.live()
		h.wantCode(h.call("x", "a\x00\xff", header("Content-Type", "application/json", "X-Bad", "a\xff", "Authorization", "Bearer t", "X-Gitlab-Token", "t")), 200)
		h.until(func() bool { return len(h.works()) == 1 })
		tr := h.works()[0]
		if tr.value("body") != "" || tr.value("body_base64") != "YQD/" {
			t.Errorf("the payload is %s", tr.Payload)
		}
		for _, gone := range []string{"Bearer", "X-Bad", "Token"} {
			if strings.Contains(string(tr.Payload), gone) {
				t.Errorf("%s is kept: %s", gone, tr.Payload)
			}
		}
	})
}

func TestOldCallsAreForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: Open, IDHeader: "X-Id"})))
		h.wantCode(h.call("x", "a", header("X-Id", "1")), 200)
		count := func() (n int64) {
			err := h.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "SELECT count(*) FROM hooks").Scan(&n)
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := h.Prune(t.Context()); err != nil || count() != 1 {
			t.Fatal(err, count())
		}
		h.exec("UPDATE hooks SET at = at - $1", remembered.Microseconds()+1)
		if err := h.Prune(t.Context()); err != nil || count() != 0 {
			t.Fatal(err, count())
		}
	})
}

func TestMuchThatIsOldIsForgottenInPieces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.exec(`INSERT INTO cascades (root, runs, refused, at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= $1)
			SELECT 'r' || i, 0, 0, 1 FROM n`, int64(2*pruned))
		before := h.db.Stats().Batches
		if err := h.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := h.db.Stats().Batches - before; n < 4 { // three of chains, one of calls
			t.Errorf("%d commits", n)
		}
		var left int64
		err := h.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, "SELECT count(*) FROM cascades").Scan(&left)
		})
		if err != nil || left != 0 {
			t.Error(err, left)
		}
	})
}

func TestWhatCannotBeKeptIsToBeSentAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(
			Target{Name: "loop:unknown", RunKind: "no such kind", On: []On{hook(Webhook{Path: "unknown", Scheme: Open})}},
			on("x", hook(Webhook{Path: "x", Scheme: Open})),
		)
		got := h.call("unknown", "a", nil)
		h.wantCode(got, 503)
		if _, err := h.log.Last(t.Context(), "webhook:unknown", KindHook); !fault.Is(err, fault.NotFound) {
			t.Errorf("it was kept without its run: %v", err)
		}
		h.wantCode(h.call("x", strings.Repeat("\x01", maxBody), nil), 200) // six times as long once it is written down
		if err := h.db.Close(); err != nil {
			t.Fatal(err)
		}
		if got = h.call("x", "a", nil); got.code != 503 || got.head.Get("Retry-After") == "" || got.Error.Class != fault.Unavailable {
			t.Errorf("a store that is closed: %+v", got)
		}
	})
}

func TestWhatWasRefusedIsCountedUntilItCanBeWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.setSecret("gh", githubSecret)
		h.replace(on("x", hook(Webhook{Path: "x", Scheme: GitHub, Secrets: []string{"gh"}})))
		h.wantCode(h.call("x", "a", nil), 401)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.FlushRefusals(over); err == nil {
			t.Fatal("it was written after its time")
		}
		h.wantCode(h.call("x", "a", github("b", "1")), 401)
		written := h.db.Stats().Callers
		if r := h.route("x"); r.Refused != 2 || r.RefusedAt == 0 || r.Refusal != errSignature.Error() {
			t.Errorf("the route is %+v", r)
		}
		if h.db.Stats().Callers != written {
			t.Error("to look at the routes writes")
		}
		for range 2 {
			if err := h.FlushRefusals(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := h.route("x"); r.Refused != 2 || r.Refusal != errSignature.Error() {
				t.Errorf("written, the route is %+v", r)
			}
		}
	})
}

func TestTargetsThatStayAsTheyAreCostNoWrite(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t))
	all := []Target{on("x", hook(Webhook{Path: "x", Scheme: Open}), events("mail.*"), On{Schedule: &Schedule{When: "@every 1h"}})}
	h.replace(all...)
	before := h.db.Stats().WALBytes
	h.replace(all...)
	if after := h.db.Stats().WALBytes; before == 0 || after != before {
		t.Errorf("the log of the store grew from %d to %d bytes", before, after)
	}
}
