package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

const (
	maxAnswer  = 1 << 20  // bytes of the answer to a call
	maxUpdates = 16 << 20 // the server ends a list of updates at 4 MiB, before the one that is over
	maxSaid    = 300      // bytes of what a server says of an error
	maxWait    = 24 * time.Hour
)

// refusal is an answer of the Bot API that is no success.
type refusal struct {
	method    string
	code      int
	said      string
	retry     time.Duration // what it asks to wait
	migrateTo int64         // the supergroup that a group has become
}

func (r *refusal) Error() string {
	return fmt.Sprintf("Telegram answers %s with %d: %s", r.method, r.code, r.said)
}

func (r *refusal) says(part string) bool {
	return strings.Contains(strings.ToLower(r.said), part)
}

// envelope is every answer.
type envelope struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int64 `json:"retry_after"`
		MigrateTo  int64 `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// do makes a call and decodes its result, nil for none. Its error is a *refusal, or has the
// class that says whether the call can have had an effect: Unavailable if it has none. The
// token, which is part of the address, is in no error.
func (a *adapter) do(ctx context.Context, c *http.Client, method string, params, result any) error {
	token, err := a.token(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(params)
	if err != nil {
		return fault.New(fault.Invalid, "%s: %w", method, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/bot"+token+"/"+method, bytes.NewReader(body))
	if err != nil {
		return fault.New(fault.Unavailable, "%s: %w", method, withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req) //nolint:bodyclose // channel.ReadAll closes it
	if err != nil {
		c.CloseIdleConnections() // one that died unseen, as while the machine slept, must not break the next call too
		return noAnswer(method, withoutURL(err))
	}
	data, err := channel.ReadAll(resp, maxUpdates)
	if err != nil {
		if resp.StatusCode >= 400 && resp.StatusCode < 500 {
			return noBotAPI(method, resp) // it was refused, whatever more was said
		}
		return fault.New(fault.Unknown, "%s: %w", method, err)
	}
	return read(method, resp, data, token, result)
}

// withoutURL takes the address away that net/http puts in front of an error.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func noAnswer(method string, err error) error {
	if fault.Is(err, fault.Unavailable) {
		return fault.New(fault.Unavailable, "%s: %w", method, err)
	}
	return fault.New(fault.Unknown, "%s: no answer: %w", method, err)
}

// read makes of an answer its result or its error.
func read(method string, resp *http.Response, data []byte, token string, result any) error {
	var e envelope
	err := json.Unmarshal(data, &e)
	if err == nil && e.OK && resp.StatusCode == http.StatusOK {
		if result == nil {
			return nil
		}
		err = json.Unmarshal(e.Result, result)
		if err == nil {
			return nil
		}
	}
	code := resp.StatusCode
	if err == nil && e.Code != 0 {
		code = e.Code
	}
	if err != nil || e.OK || code < 400 {
		return noBotAPI(method, resp)
	}
	r := &refusal{method: method, code: code, said: said(e.Description, token), migrateTo: e.Parameters.MigrateTo}
	if s := e.Parameters.RetryAfter; s > 0 {
		r.retry = time.Duration(min(s, int64(maxWait/time.Second))) * time.Second
	} else {
		r.retry = channel.RetryAfter(resp.Header)
	}
	return r
}

// said is what a server says, bounded and without the token: a server may repeat the
// request.
func said(text, token string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, ""), token, "[token]")
	return fault.Cut(oneLine(text), maxSaid)
}

// noBotAPI is the error of an answer that is none of a Bot API: what stands between gave
// it. One of 4xx was refused there. Any other proves nothing.
func noBotAPI(method string, resp *http.Response) error {
	status := resp.StatusCode
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return channel.Refused(status, channel.RetryAfter(resp.Header), "%s: no answer of Telegram's, with status %d", method, status)
	case status >= 400 && status < 500:
		return fault.New(fault.Unavailable, "%s: no answer of Telegram's, with status %d", method, status)
	}
	return fault.New(fault.Unknown, "%s: no answer of Telegram's, with status %d", method, status)
}

const hintToken = "take the token from @BotFather again; a new one makes the one before it useless"

// connected is the error of a call that looks at the connection: Denied if the token is
// refused, Conflict if another program has the updates.
func connected(err error) error {
	if no, ok := errors.AsType[*noToken](err); ok {
		return fault.New(fault.Denied, "%w", no).WithHint("%s", no.err.Hint)
	}
	r, ok := errors.AsType[*refusal](err)
	switch {
	case !ok:
		return err
	case r.code == http.StatusUnauthorized, r.code == http.StatusNotFound:
		return fault.New(fault.Denied, "Telegram refuses the token: %w", r).WithHint(hintToken)
	case r.code == http.StatusConflict && r.says("webhook"):
		return fault.New(fault.Conflict, "another program takes what is written to the bot, by a webhook: %w", r).
			WithHint("make a bot of its own for ombud at @BotFather; or stop that program and call deleteWebhook of the Bot API, after which it gets nothing more")
	case r.code == http.StatusConflict:
		return fault.New(fault.Conflict, "another program polls with the same token, and each takes the other's messages: %w", r).
			WithHint("stop the other program, or make a bot of its own for ombud at @BotFather")
	case r.code == http.StatusTooManyRequests:
		return channel.Refused(r.code, r.retry, "%v", r)
	}
	return fault.New(fault.Unavailable, "%w", r)
}

// delivered is the error of a call that sends, with the class of what became of it.
func delivered(err error) error {
	r, ok := errors.AsType[*refusal](err)
	switch {
	case !ok:
		return err
	case r.migrateTo != 0:
		return fault.New(fault.NotFound, "%w", r).WithHint("the group is the supergroup %d now; set what was set for it for that", r.migrateTo)
	case r.code == http.StatusUnauthorized, r.code == http.StatusNotFound:
		return fault.New(fault.Unavailable, "Telegram refuses the token: %w", r).WithHint(hintToken)
	case r.code == http.StatusBadRequest && r.says("not found"):
		return fault.New(fault.NotFound, "%w", r)
	case r.code == http.StatusBadRequest && (r.says("not enough rights") || r.says("chat_write_forbidden")):
		return fault.New(fault.Denied, "%w", r)
	}
	return channel.Refused(r.code, r.retry, "%v", r)
}

// retryAfter is how long an error asks to wait, 0 if it does not.
func retryAfter(err error) time.Duration {
	if r, ok := errors.AsType[*outbox.RetryAfter](err); ok {
		return min(r.After, maxWait)
	}
	return 0
}
