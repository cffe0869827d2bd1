package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// identity is what a call that proved its sender is known by.
type identity struct {
	id     string // what the sender calls it, "" for nothing
	proved bool   // the id is part of what was signed, or nothing is signed at all
}

// Why a call is refused. None of it reaches the caller.
var (
	errUnsigned  = errors.New("it has no signature")
	errSignature = errors.New("the signature is another")
	errTime      = errors.New("its time is not this time")
	errForm      = errors.New("a header of it is malformed, or there twice")
)

// Limits of headers.
const (
	maxID         = 256
	maxSignatures = 16
	maxSignature  = 4096
)

// form is how a call is signed: with HMAC-SHA256 over what its headers say and its body.
type form struct {
	signature string                     // the header that has signatures, with spaces between
	prefix    string                     // before each of them
	id        string                     // the header that has what the sender calls the call; "" for none
	time      string                     // the header that has when it was sent, in Unix seconds; "" for none
	before    func(id, at string) string // what is signed before the body; nil for nothing
	proves    bool                       // the id is part of that, and has to be there
}

// forms are those of the schemes that are not the same for all who use them. A call of
// Slack's that is made again has another time, and no id but what is in its body.
var forms = map[Scheme]form{
	Standard: {
		signature: "Webhook-Signature", prefix: "v1,", id: "Webhook-Id", time: "Webhook-Timestamp", proves: true,
		before: func(id, at string) string { return id + "." + at + "." },
	},
	Slack: {
		signature: "X-Slack-Signature", prefix: "v0=", time: "X-Slack-Request-Timestamp",
		before: func(_, at string) string { return "v0:" + at + ":" },
	},
	GitHub: {signature: "X-Hub-Signature-256", prefix: "sha256=", id: "X-Github-Delivery"},
}

// verify proves that a call was signed with one of the keys, and tells how it is known.
func (w *Webhook) verify(h http.Header, body []byte, keys [][]byte, now time.Time) (identity, error) {
	f, ours := forms[w.Scheme]
	if !ours {
		f = form{signature: w.Header, prefix: "sha256=", id: w.IDHeader}
	}
	id, err := optional(h, f.id)
	if err != nil || w.Scheme == Open {
		return identity{id: id, proved: true}, err
	}
	if id == "" && f.proves {
		return identity{}, errUnsigned
	}
	var at, before string
	if f.time != "" {
		if at, err = timely(h, f.time, now); err != nil {
			return identity{}, err
		}
	}
	if f.before != nil {
		before = f.before(id, at)
	}
	sums, err := sumsOf(h, f)
	if err != nil {
		return identity{}, err
	}
	return identity{id: id, proved: f.proves}, signed(keys, sums, []byte(before), body)
}

// sumsOf are the signatures of a call that can be read: of several, one is enough, and a
// form to come may stand beside ours.
func sumsOf(h http.Header, f form) (sums [][]byte, err error) {
	given, err := single(h, f.signature, maxSignature)
	if err != nil {
		return nil, err
	}
	all := strings.Fields(given)
	if len(all) > maxSignatures {
		return nil, errForm
	}
	for _, one := range all {
		if sum := sumOf(strings.TrimPrefix(one, f.prefix)); sum != nil {
			sums = append(sums, sum)
		}
	}
	if sums == nil {
		return nil, errForm
	}
	return sums, nil
}

// sumOf reads a sum in hex or base64, which are of different lengths; nil if it is none.
func sumOf(text string) []byte {
	decode := base64.StdEncoding.DecodeString
	if len(text) == hex.EncodedLen(sha256.Size) {
		decode = hex.DecodeString
	}
	sum, err := decode(text)
	if err != nil || len(sum) != sha256.Size {
		return nil
	}
	return sum
}

// signed reports whether one of the sums is that of prefix and body with one of the keys.
// How long it takes depends on their numbers only.
func signed(keys, sums [][]byte, prefix, body []byte) error {
	found := false
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write(prefix)
		mac.Write(body)
		want := mac.Sum(nil)
		for _, sum := range sums {
			if hmac.Equal(sum, want) {
				found = true
			}
		}
	}
	if !found {
		return errSignature
	}
	return nil
}

// timely is a header with a time in Unix seconds that is not too far from now.
func timely(h http.Header, name string, now time.Time) (string, error) {
	text, err := single(h, name, 20)
	if err != nil {
		return "", err
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text[0] == '+' {
		return "", errForm
	}
	if d := now.Unix() - at; d >= int64(tolerance/time.Second) || -d >= int64(tolerance/time.Second) {
		return "", errTime
	}
	return text, nil
}

// single is a header that has to be there once, in printable ASCII.
func single(h http.Header, name string, most int) (string, error) {
	values := h[name]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", errUnsigned
	case len(values) > 1 || len(values[0]) > most:
		return "", errForm
	}
	for _, c := range []byte(values[0]) {
		if c < ' ' || c > '~' {
			return "", errForm
		}
	}
	return values[0], nil
}

// optional is a header that may be missing; so may its name.
func optional(h http.Header, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := single(h, name, maxID)
	if errors.Is(err, errUnsigned) {
		return "", nil
	}
	return text, err
}

// keyOf is a secret as the key of a scheme.
func (w *Webhook) keyOf(text string) ([]byte, error) {
	if w.Scheme != Standard {
		return []byte(text), nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), "whsec_"))
	if err != nil || len(key) == 0 {
		return nil, fault.New(fault.Config, "a secret of %s is not whsec_ and base64, as %s has them", w.Path, Standard)
	}
	return key, nil
}
