package wasmloop

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestAPublishersKeyIsReadBack(t *testing.T) {
	t.Parallel()
	data, err := MarshalPublisher(key("maker"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParsePublisher(data)
	if err != nil || !bytes.Equal(got, key("maker")) {
		t.Fatal(err)
	}
	other, err := MarshalPublisher(key("other"))
	if err != nil {
		t.Fatal(err)
	}
	half := func(b []byte, n int) string { return strings.Split(string(b), `"`)[n] }
	for name, text := range map[string]string{
		"no JSON":             "x",
		"empty":               "{}",
		"another public":      strings.Replace(string(data), half(data, 3), half(other, 3), 1),
		"another private":     strings.Replace(string(data), half(data, 7), half(other, 7), 1),
		"short":               strings.Replace(string(data), half(data, 7), half(data, 7)[:40], 1),
		"padded, as nobody's": strings.Replace(string(data), half(data, 7), half(data, 7)+"==", 1),
	} {
		_, err := ParsePublisher([]byte(text))
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), half(data, 7)) || strings.Contains(err.Error(), half(other, 7))) {
			t.Errorf("%s: the error tells the key: %v", name, err)
		}
	}
	if _, err := MarshalPublisher(nil); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}
