package trigger

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/secret"
)

// Webhook starts a target when somebody calls its path.
type Webhook struct { //nolint:recvcheck // normal changes a copy
	Path    string   `json:"path"`              // below /hooks/; two targets cannot have one
	Scheme  Scheme   `json:"scheme"`            // how a call proves who sent it
	Secrets []string `json:"secrets,omitempty"` // names of secrets, any of which may have signed; none with Open

	// For Generic, and IDHeader also for Open.
	Header   string `json:"header,omitempty"`    // has the signature of the body, with or without sha256= before it; default X-Signature-256
	IDHeader string `json:"id_header,omitempty"` // has what the sender calls the call, if it does
}

// Scheme says how a call is signed.
type Scheme string

// The schemes.
const (
	Standard Scheme = "standard-webhooks" // webhook-id, webhook-timestamp and body
	GitHub   Scheme = "github"            // X-Hub-Signature-256 of the body
	Slack    Scheme = "slack"             // X-Slack-Request-Timestamp and body
	Generic  Scheme = "generic"           // a header with an HMAC-SHA256 of the body
	Open     Scheme = "open"              // not at all: anybody can call it
)

// Schemes are all of them.
var Schemes = []string{string(Standard), string(GitHub), string(Slack), string(Generic), string(Open)}

// Limits of a webhook.
const (
	maxBody    = 1 << 20 // bytes
	perMinute  = 600     // calls of a route
	maxSecrets = 8

	tolerance  = 5 * time.Minute     // how far the time a call names may be off, both ways
	remembered = 30 * 24 * time.Hour // how long the id and the body of a call are kept
)

// HooksPath is where webhooks are called.
const HooksPath = "/hooks/"

var (
	paths   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)
	headers = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)
)

// normal fills in what is left out, and takes /hooks/ from before the path.
func (w Webhook) normal() Webhook {
	w.Path = strings.TrimPrefix(w.Path, HooksPath)
	if w.Scheme == Generic && w.Header == "" {
		w.Header = "X-Signature-256"
	}
	w.Header, w.IDHeader = http.CanonicalHeaderKey(w.Header), http.CanonicalHeaderKey(w.IDHeader)
	return w
}

func (w *Webhook) check() error {
	bad := func(format string, args ...any) *fault.Error { return fault.New(fault.Invalid, format, args...) }
	switch {
	case !paths.MatchString(w.Path) || len(w.Path) > 128:
		return bad("%q is no path of a webhook: letters, digits and . _ ~ - between slashes, at most 128", w.Path)
	case !slices.Contains(Schemes, string(w.Scheme)):
		return bad("webhook %s: %q is no scheme: it is %s", w.Path, w.Scheme, strings.Join(Schemes, ", "))
	case w.Scheme == Open && len(w.Secrets) > 0:
		return bad("webhook %s: it is open, and has a secret that nobody asks for", w.Path)
	case w.Scheme != Open && (len(w.Secrets) == 0 || len(w.Secrets) > maxSecrets):
		return bad("webhook %s: it needs 1 to %d secrets to prove who calls", w.Path, maxSecrets).
			WithHint("ombud secret set NAME; or scheme: open lets anybody start it")
	case w.Scheme != Generic && w.Header != "" || w.Scheme != Generic && w.Scheme != Open && w.IDHeader != "":
		return bad("webhook %s: the scheme %s says itself where its signature and id are", w.Path, w.Scheme)
	}
	for _, name := range []string{w.Header, w.IDHeader} {
		if name != "" && !headers.MatchString(name) {
			return bad("webhook %s: %q is no name of a header", w.Path, name)
		}
	}
	for _, name := range w.Secrets {
		if err := secret.CheckName(name); err != nil {
			return bad("webhook %s: %w", w.Path, err)
		}
	}
	return nil
}
