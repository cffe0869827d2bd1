package trigger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

// KindHook is the kind of event an accepted call leaves.
const KindHook = "webhook.fired"

// HookData is its payload, with KARMAX's keys, and what a run is started with.
type HookData struct {
	WebhookID string            `json:"webhook_id"`
	Route     string            `json:"route"`
	Method    string            `json:"method"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Base64    string            `json:"body_base64,omitempty"` // in the place of Body where that is no text
	JSON      json.RawMessage   `json:"json,omitempty"`        // Body as what it says, if it is JSON and not long
}

// Accepted is what became of a call that proved its sender.
type Accepted struct {
	ID        string // of the hook
	Run       string // "" if none was started
	Duplicate bool   // it had been taken before, and nothing was started
}

// maxParsed is up to which length a body is shown as JSON besides.
const maxParsed = 256 << 10

var errReplay = fault.New(fault.Conflict, "this was sent before under another id, or another thing under this id")

// accept makes a call that proved its sender a row, an event and a run, in one commit.
func (t *Triggers) accept(ctx context.Context, w Webhook, who identity, h http.Header, body []byte) (out Accepted, err error) {
	sum := sha256.Sum256(body)
	content := t.vault.Blind(vault.HookKey, "content\x00"+w.Path+"\x00"+string(sum[:]))
	var key []byte
	switch {
	case who.id != "":
		key = t.vault.Blind(vault.HookKey, "id\x00"+w.Path+"\x00"+who.id)
	case w.Scheme != Open:
		key = content
	}
	data := dataOf(w, h, body)
	err = t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out = Accepted{ID: id.New("hook")}
		s, w, err := t.routeOf(ctx, tx, w.Path)
		if err != nil {
			return err
		}
		if first, err := t.seen(ctx, tx, w, who, key, content); err != nil || first != "" {
			out.ID, out.Duplicate = first, true
			return err
		}
		data.WebhookID = out.ID
		evs, err := t.log.AppendTx(ctx, tx, eventlog.New{
			Stream: "webhook:" + w.Path, Kind: KindHook, Actor: "webhook:" + w.Path, Data: data, Expect: eventlog.Any,
		})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO hooks (id, route, key, content, event, at) VALUES ($1, $2, $3, $4, $5, $6)",
			out.ID, w.Path, key, content, evs[0].ID, tx.Now())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE routes SET accepted = accepted + 1, seen_at = $1 WHERE path = $2", tx.Now(), w.Path); err != nil {
			return err
		}
		out.Run, err = t.start(ctx, tx, s, Trigger{
			Kind: ByWebhook, Name: w.Path, Event: evs[0].ID, EventKind: KindHook, Payload: evs[0].Data,
			Label: label.Of(label.Untrusted("webhook:"+w.Path), label.OperatorOnly),
		}, origin{replay: true})
		failpoint.Hit("trigger.hooked")
		return err
	})
	return out, err
}

// seen returns the hook a call was taken as before, "" if it was not. Conflict if the id
// came with another body, or a body whose signature says nothing of the id with another id.
func (t *Triggers) seen(ctx context.Context, tx *db.Tx, w Webhook, who identity, key, content []byte) (first string, err error) {
	if key == nil {
		return "", nil
	}
	var same int64
	err = tx.QueryRow(ctx, "SELECT id, CASE WHEN content = $2 THEN 1 ELSE 0 END FROM hooks WHERE key = $1", key, content).Scan(&first, &same)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", replayed(ctx, tx, who, content)
	case err != nil:
		return "", err
	case same == 0:
		return "", errReplay
	}
	_, err = tx.Exec(ctx, "UPDATE routes SET repeated = repeated + 1 WHERE path = $1", w.Path)
	return first, err
}

// replayed refuses a body that came under another id, where the id is not signed.
func replayed(ctx context.Context, tx *db.Tx, who identity, content []byte) error {
	if who.proved {
		return nil
	}
	var n int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM hooks WHERE content = $1", content).Scan(&n)
	if err == nil && n > 0 {
		err = errReplay
	}
	return err
}

// dataOf is what is kept of a call.
func dataOf(w Webhook, h http.Header, body []byte) HookData {
	d := HookData{Route: w.Path, Method: http.MethodPost, Headers: kept(h, w)}
	if !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0 {
		d.Base64 = base64.StdEncoding.EncodeToString(body)
		return d
	}
	d.Body = string(body)
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	isJSON := err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	if isJSON && len(body) <= maxParsed && json.Valid(body) {
		d.JSON = json.RawMessage(body)
	}
	return d
}

// Limits of the headers that are kept.
const (
	maxHeaders     = 64
	maxHeaderValue = 1024
)

// secretive are parts of the names of headers that hold what lets somebody in, or prove a
// call. An open route is called by senders of every kind.
var secretive = []string{
	"auth", "cookie", "signature", "hmac", "token", "secret", "password", "passwd", "credential", "api-key", "apikey", "access-key",
}

// kept are the headers that are kept, by their names.
func kept(h http.Header, w Webhook) map[string]string {
	out := map[string]string{}
	for name, values := range h {
		text := strings.Join(values, ", ")
		lower := strings.ToLower(name)
		hidden := name == w.Header || slices.ContainsFunc(secretive, func(part string) bool { return strings.Contains(lower, part) })
		if hidden || len(out) == maxHeaders || len(text) > maxHeaderValue || !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			continue
		}
		out[name] = text
	}
	return out
}
