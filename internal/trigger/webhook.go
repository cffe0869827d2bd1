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
type Webhook struct {
	Path    string   `json:"path"`              // below /hooks/; two targets cannot have one
	Scheme  Scheme   `json:"scheme"`            // how a call proves who sent it
	Secrets []string `json:"secrets,omitempty"` // names of secrets, any of which may have signed; none with Open

	// For Generic, and IDHeader also for Open.
	Header   string `json:"header,omitempty"`    // has the signature of the body; default X-Signature-256
	Encoding string `json:"encoding,omitempty"`  // hex (the default) or base64, with or without sha256= before it
	IDHeader string `json:"id_header,omitempty"` // has what the sender calls the call, if it does

	MaxBody   int64         `json:"max_body,omitempty"`   // bytes; default DefaultBody, at most MaxBody
	PerMinute int           `json:"per_minute,omitempty"` // calls that are taken; default DefaultRate
	Replay    time.Duration `json:"replay,omitempty"`     // how long a body is not taken again; default Remembered
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

// Limits and defaults of a webhook.
const (
	DefaultBody = 1 << 20
	MaxBody     = 16 << 20
	DefaultRate = 600
	maxRate     = 600_000
	maxSecrets  = 8

	Tolerance  = 5 * time.Minute     // how far the time a call names may be off, both ways
	Remembered = 30 * 24 * time.Hour // how long the id of a call is kept
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
	if w.Scheme == Generic {
		if w.Header == "" {
			w.Header = "X-Signature-256"
		}
		if w.Encoding == "" {
			w.Encoding = "hex"
		}
	}
	w.Header, w.IDHeader = http.CanonicalHeaderKey(w.Header), http.CanonicalHeaderKey(w.IDHeader)
	if w.MaxBody == 0 {
		w.MaxBody = DefaultBody
	}
	if w.PerMinute == 0 {
		w.PerMinute = DefaultRate
	}
	if w.Replay == 0 {
		w.Replay = Remembered
	}
	return w
}

func (w *Webhook) check() error {
	bad := func(format string, args ...any) error { return fault.New(fault.Invalid, format, args...) }
	switch {
	case !paths.MatchString(w.Path) || len(w.Path) > 128:
		return bad("%q is no path of a webhook: letters, digits and . _ ~ - between slashes, at most 128", w.Path)
	case !slices.Contains(Schemes, string(w.Scheme)):
		return bad("webhook %s: %q is no scheme: it is %s", w.Path, w.Scheme, strings.Join(Schemes, ", "))
	case w.Scheme == Open && len(w.Secrets) > 0:
		return bad("webhook %s: it is open, and has a secret that nobody asks for", w.Path)
	case w.Scheme != Open && (len(w.Secrets) == 0 || len(w.Secrets) > maxSecrets):
		return bad("webhook %s: it needs 1 to %d secrets to prove who calls", w.Path, maxSecrets).(*fault.Error).
			WithHint("ombud secret set NAME; or scheme: open lets anybody start it")
	case w.Scheme != Generic && (w.Header != "" || w.Encoding != "") || w.Scheme != Generic && w.Scheme != Open && w.IDHeader != "":
		return bad("webhook %s: the scheme %s says itself where its signature and id are", w.Path, w.Scheme)
	case w.Scheme == Generic && (!headers.MatchString(w.Header) || w.Encoding != "hex" && w.Encoding != "base64"):
		return bad("webhook %s: a signature is in a header, as hex or base64", w.Path)
	case w.IDHeader != "" && !headers.MatchString(w.IDHeader):
		return bad("webhook %s: %q is no name of a header", w.Path, w.IDHeader)
	case w.MaxBody < 1 || w.MaxBody > MaxBody:
		return bad("webhook %s: a body has at most %d bytes", w.Path, MaxBody)
	case w.PerMinute < 1 || w.PerMinute > maxRate:
		return bad("webhook %s: 1 to %d calls a minute", w.Path, maxRate)
	case w.Replay < Tolerance || w.Replay > Remembered:
		return bad("webhook %s: a body is refused again for %s to %s", w.Path, Tolerance, Remembered)
	}
	for _, name := range w.Secrets {
		if err := secret.CheckName(name); err != nil {
			return bad("webhook %s: %w", w.Path, err)
		}
	}
	return nil
}
