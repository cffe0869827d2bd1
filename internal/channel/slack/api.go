package slack

import (
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

// maxAnswer bounds an answer of the Web API, in bytes: a page of 200 long messages.
const maxAnswer = 16 << 20

// api calls the Web API.
type api struct {
	base   string // ends with a slash
	client *http.Client
	secret func(ctx context.Context, part string) (string, error)
}

// refused is the error of a call that Slack answered with a refusal.
type refused struct {
	code string // as Slack says it; "" of a status alone
	key  bool   // the token is refused: it has to be mended
	err  error  // with its class
}

func (e *refused) Error() string { return e.err.Error() }
func (e *refused) Unwrap() error { return e.err }

func (e *refused) hint(format string, args ...any) error {
	if f, ok := errors.AsType[*fault.Error](e.err); ok {
		e.err = f.WithHint(format, args...)
	}
	return e
}

func keyTrouble(code, format string, args ...any) *refused {
	return &refused{code: code, key: true, err: fault.New(fault.Denied, format, args...)}
}

// codeOf returns Slack's word for an error, "" if it has none.
func codeOf(err error) string {
	if r, ok := errors.AsType[*refused](err); ok {
		return r.code
	}
	return ""
}

// sending turns the error of a call that sends into what became of the message: a refused
// token is only trouble, because it will be mended.
func sending(err error) error {
	if r, ok := errors.AsType[*refused](err); ok && r.key {
		return fault.New(fault.Unavailable, "%w", err).WithHint("%s", fault.HintOf(err))
	}
	return err
}

// verdict is what every answer has.
type verdict struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error"`
	Needed string `json:"needed"` // the scope that is missing
}

// call calls a method with the token of a part and decodes the answer into out. Everything
// is sent as a form: the methods that read take nothing else. The token is in a header
// alone, so no error and no log can show it.
func (a *api) call(ctx context.Context, method, part string, form url.Values, out any) error {
	token, err := a.token(ctx, part)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+method, strings.NewReader(form.Encode()))
	if err != nil {
		return fault.New(fault.Config, "slack: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := a.client.Do(req) //nolint:bodyclose // channel.ReadAll closes it
	if err != nil {
		return unanswered(method, err)
	}
	data, err := channel.ReadAll(resp, maxAnswer)
	if resp.StatusCode != http.StatusOK {
		return status(method, resp)
	}
	if err != nil {
		return fault.New(fault.Unknown, "slack: %s: %w", method, err)
	}
	return decode(method, data, out)
}

// token reads a token. One that stands in the wrong place is told of before Slack says
// something less clear.
func (a *api) token(ctx context.Context, part string) (string, error) {
	token, err := a.secret(ctx, part)
	if fault.Is(err, fault.NotFound) {
		return "", keyTrouble("no_token", "slack: %s is not set", part)
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "slack: %s: %w", part, err)
	}
	token = strings.TrimSpace(token)
	switch {
	case token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", keyTrouble("no_token", "slack: %s is not a token", part)
	case part == partApp && strings.HasPrefix(token, "xox"):
		return "", keyTrouble("wrong_token", "slack: %s holds a bot token: it has to begin with xapp-", part)
	case part == partBot && strings.HasPrefix(token, "xapp-"):
		return "", keyTrouble("wrong_token", "slack: %s holds an app-level token: it has to begin with xoxb-", part)
	}
	return token, nil
}

// unanswered is the error of a call without an answer: of a class that says that nothing
// was sent if that is known, else nobody knows.
func unanswered(method string, err error) error {
	switch fault.ClassOf(err) {
	case fault.Unavailable, fault.Denied:
		return fmt.Errorf("slack: %s: %w", method, err)
	}
	return fault.New(fault.Unknown, "slack: %s was not answered: %w", method, err)
}

func status(method string, resp *http.Response) error {
	err := channel.Refused(resp.StatusCode, channel.RetryAfter(resp.Header), "slack: %s was answered with status %d", method, resp.StatusCode)
	if resp.StatusCode == http.StatusUnauthorized {
		return &refused{key: true, err: fault.New(fault.Denied, "%w", err)}
	}
	return err
}

// decode reads an answer. One that does not say that it is ok and does not say why not
// proves nothing.
func decode(method string, data []byte, out any) error {
	var v verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return fault.New(fault.Unknown, "slack: the answer of %s is not JSON", method)
	}
	if !v.OK {
		return refusal(method, v)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fault.New(fault.Unknown, "slack: the answer of %s has another shape", method)
	}
	return nil
}

func refusal(method string, v verdict) error {
	code := word(v.Error)
	if code == "" {
		return fault.New(fault.Unknown, "slack: the answer of %s says neither ok nor what is wrong", method)
	}
	class, ok := codes[code]
	if !ok && strings.HasPrefix(code, "restricted_action") {
		class = fault.Denied
	}
	text := fmt.Sprintf("slack: %s: %s", method, code)
	switch {
	case keyCodes[code]:
		r := keyTrouble(code, "%s", text)
		if code == "missing_scope" {
			return r.hint("the app needs the scope %s: add it at api.slack.com/apps, OAuth & Permissions, and install the app again", word(v.Needed))
		}
		return r.hint("see the app at api.slack.com/apps, and give ombud the token that is shown there now")
	case code == "ratelimited" || code == "rate_limited" || code == "message_limit_exceeded":
		return &refused{code: code, err: &outbox.RetryAfter{After: limited, Err: fault.New(fault.Unavailable, "%s", text)}}
	case class != "":
		return &refused{code: code, err: fault.New(class, "%s", text)}
	}
	return &refused{code: code, err: fault.New(fault.Unknown, "%s", text)}
}

// limited is how long to wait where Slack does not say.
const limited = 10 * time.Second

// word makes one word of what should be one: it goes into errors and logs.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_:.,-", r) {
			return r
		}
		return -1
	}, s[:min(len(s), 80)])
}

// keyCodes are the errors of a token that is refused, or that lacks a right.
var keyCodes = map[string]bool{
	"not_authed": true, "invalid_auth": true, "account_inactive": true, "token_revoked": true, "token_expired": true,
	"no_permission": true, "org_login_required": true, "ekm_access_denied": true, "missing_scope": true,
	"not_allowed_token_type": true, "access_denied": true, "team_access_not_granted": true, "two_factor_setup_required": true,
	"app_not_installed": true, "socket_mode_disabled": true, "forbidden_team": true,
}

// codes say what became of what was to be done. Not here are errors after which, as Slack
// says, some of it may have been done (internal_error, fatal_error), and unknown ones.
var codes = map[string]fault.Class{
	"channel_not_found": fault.NotFound, "message_not_found": fault.NotFound, "thread_not_found": fault.NotFound,
	"user_not_found": fault.NotFound, "user_not_visible": fault.NotFound, "channel_is_limited_access": fault.Denied,

	"not_in_channel": fault.Denied, "is_archived": fault.Denied, "cant_update_message": fault.Denied,
	"edit_window_closed": fault.Denied, "messages_tab_disabled": fault.Denied, "cannot_reply_to_message": fault.Denied,
	"cannot_dm_bot": fault.Denied, "user_disabled": fault.Denied, "cant_post_message": fault.Denied, "is_inactive": fault.Denied,

	"msg_too_long": fault.Invalid, "no_text": fault.Invalid, "invalid_blocks": fault.Invalid, "invalid_blocks_format": fault.Invalid,
	"msg_blocks_too_long": fault.Invalid, "invalid_arguments": fault.Invalid, "invalid_arg_name": fault.Invalid,
	"invalid_form_data": fault.Invalid, "invalid_charset": fault.Invalid, "invalid_post_type": fault.Invalid,
	"missing_post_type": fault.Invalid, "metadata_too_large": fault.Invalid, "invalid_metadata_format": fault.Invalid,
	"invalid_metadata_schema": fault.Invalid, "metadata_must_be_sent_from_app": fault.Invalid, "too_many_attachments": fault.Invalid,
	"unknown_method": fault.Invalid, "method_deprecated": fault.Invalid, "deprecated_endpoint": fault.Invalid,

	"request_timeout": fault.Unavailable, "team_added_to_org": fault.Unavailable, "service_unavailable": fault.Unavailable,
	"external_channel_migrating": fault.Unavailable, "team_not_found": fault.Unavailable,
}
