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

// verify proves that a call was signed with one of the keys, and tells how it is known.
func (w *Webhook) verify(h http.Header, body []byte, keys [][]byte, now time.Time) (identity, error) {
	switch w.Scheme {
	case Standard:
		return verifyStandard(h, body, keys, now)
	case Slack:
		return verifySlack(h, body, keys, now)
	case GitHub:
		return verifyBody(h, body, keys, "X-Hub-Signature-256", "hex", "X-Github-Delivery")
	case Generic:
		return verifyBody(h, body, keys, w.Header, w.Encoding, w.IDHeader)
	case Open:
		id, err := optional(h, w.IDHeader)
		return identity{id: id, proved: true}, err
	}
	return identity{}, fault.New(fault.Internal, "scheme %q is not known", w.Scheme)
}

// verifyStandard is that of standardwebhooks.com: HMAC-SHA256 over id.timestamp.body, in
// base64 behind "v1,", several of them with spaces between while a secret is replaced.
func verifyStandard(h http.Header, body []byte, keys [][]byte, now time.Time) (identity, error) {
	id, err1 := single(h, "Webhook-Id", maxID)
	at, err2 := single(h, "Webhook-Timestamp", 20)
	given, err3 := single(h, "Webhook-Signature", maxSignature)
	if err := errors.Join(err1, err2, err3); err != nil {
		return identity{}, err
	}
	if err := timely(at, now); err != nil {
		return identity{}, err
	}
	var sums [][]byte
	for i, one := range strings.Fields(given) {
		if i == maxSignatures {
			return identity{}, errForm
		}
		if text, ok := strings.CutPrefix(one, "v1,"); ok {
			if sum, err := base64.StdEncoding.DecodeString(text); err == nil {
				sums = append(sums, sum)
			}
		}
	}
	return identity{id: id, proved: true}, signed(keys, sums, []byte(id+"."+at+"."), body)
}

// verifySlack is that of Slack: HMAC-SHA256 over v0:timestamp:body, in hex behind "v0=".
// A call that is made again has another time, and no id but what is in its body.
func verifySlack(h http.Header, body []byte, keys [][]byte, now time.Time) (identity, error) {
	at, err1 := single(h, "X-Slack-Request-Timestamp", 20)
	given, err2 := single(h, "X-Slack-Signature", maxSignature)
	if err := errors.Join(err1, err2); err != nil {
		return identity{}, err
	}
	if err := timely(at, now); err != nil {
		return identity{}, err
	}
	text, ok := strings.CutPrefix(given, "v0=")
	sum, err := hex.DecodeString(text)
	if !ok || err != nil {
		return identity{}, errForm
	}
	return identity{}, signed(keys, [][]byte{sum}, []byte("v0:"+at+":"), body)
}

// verifyBody is for what signs the body alone: an id in a header is then no proof.
func verifyBody(h http.Header, body []byte, keys [][]byte, header, encoding, idHeader string) (identity, error) {
	given, err := single(h, header, maxSignature)
	if err != nil {
		return identity{}, err
	}
	id, err := optional(h, idHeader)
	if err != nil {
		return identity{}, err
	}
	given = strings.TrimPrefix(given, "sha256=")
	decode := hex.DecodeString
	if encoding == "base64" {
		decode = base64.StdEncoding.DecodeString
	}
	sum, err := decode(given)
	if err != nil {
		return identity{}, errForm
	}
	return identity{id: id}, signed(keys, [][]byte{sum}, nil, body)
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

// timely refuses a time, in Unix seconds, that is too far from now.
func timely(text string, now time.Time) error {
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text[0] == '+' {
		return errForm
	}
	if d := now.Unix() - at; d >= int64(Tolerance/time.Second) || -d >= int64(Tolerance/time.Second) {
		return errTime
	}
	return nil
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
