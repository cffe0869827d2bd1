package whatsapp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// signed reports whether a header `sha256=<hex>` is the HMAC of a body by one of the
// secrets. It takes the same time whichever fits, and an empty secret fits nothing.
func signed(header string, body []byte, secrets ...string) bool {
	text, ok := strings.CutPrefix(header, "sha256=")
	given, err := hex.DecodeString(text)
	if !ok || err != nil || len(given) != sha256.Size {
		return false
	}
	fits := false
	for _, s := range secrets {
		mac := hmac.New(sha256.New, []byte(s))
		mac.Write(body)
		fits = hmac.Equal(mac.Sum(nil), given) && s != "" || fits
	}
	return fits
}

// readSigned reads the body of a call that has to be signed. Errors: Denied if it is not,
// Invalid if it is longer than max, Unavailable if a secret could not be read, and then
// the caller should come again.
func readSigned(w http.ResponseWriter, r *http.Request, header string, max int64, secrets func() ([]string, error)) ([]byte, error) {
	given := r.Header.Get(header)
	if given == "" { // nothing is read for those who do not even try
		return nil, fault.New(fault.Denied, "the call has no %s", header)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	if err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			return nil, fault.New(fault.Invalid, "the body has more than %d bytes", max)
		}
		return nil, fault.New(fault.Cancelled, "the body was cut: %w", err)
	}
	keys, err := secrets()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "read the secret that signs calls: %w", err)
	}
	if !signed(given, body, keys...) {
		return nil, fault.New(fault.Denied, "the %s does not fit the body", header)
	}
	return body, nil
}

// refuse answers a call that readSigned refused. The reason is told in our log only: who
// cannot sign learns nothing.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	switch fault.ClassOf(err) {
	case fault.Denied:
		status = http.StatusUnauthorized
	case fault.Invalid:
		status = http.StatusRequestEntityTooLarge
	case fault.Unavailable:
		status = http.StatusServiceUnavailable
	}
	http.Error(w, http.StatusText(status), status)
}
