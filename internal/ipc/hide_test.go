package ipc

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/wire"
)

// asItIs hides nothing.
func asItIs(body []byte) []byte { return body }

const sekret = `s3kr3t "value"/0001`

// fill puts the secret into every text of v, in one of its spellings each.
func fill(v reflect.Value, n *int) {
	spellings := []string{sekret, "x " + sekret + " y", base64.StdEncoding.EncodeToString([]byte("u:" + sekret)), `{\"a\":\"` + strings.ReplaceAll(sekret, `"`, `\"`) + `\"}`}
	*n++
	text := spellings[*n%len(spellings)]
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		switch v.Interface().(type) {
		case json.RawMessage:
			raw, err := json.Marshal(map[string]any{text: []string{text}})
			if err != nil {
				panic(err)
			}
			v.SetBytes(raw)
		case []byte:
			v.SetBytes([]byte(text))
		default:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				fill(v.Index(i), n)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(elem, n)
		v.SetMapIndex(key, elem)
	default:
	}
}

// TestEveryMethodHidesWhatIsSecret answers every method there is with the secret in
// every text, notes and errors too. A method that is added is in it by itself; one
// that may answer verbatim has to be added to the list here, with its reason.
func TestEveryMethodHidesWhatIsSecret(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"runs.receipt": "it is signed", "audit.anchor": "it is signed", "audit.export": "it is signed",
		"adapter.add": "its answer is the one place where it is told", "vault.recoverykey": "its answer is the one place where it is told",
		"mcpclient.add": "its answer is the one place where it is told", "mcpclient.lend": "its answer is the one place where it is told",
	}
	r := redact.New()
	r.Register("known", []byte(sekret))
	for _, m := range slices.Concat(wire.Methods(), wire.AgentMethods()) {
		if m.Verbatim != allowed[m.Name] {
			t.Errorf("%s answers verbatim because %q, and may because %q", m.Name, m.Verbatim, allowed[m.Name])
		}
		if m.Builtin {
			continue
		}
		got := answers(t, r, m)
		shown := r.Find([]byte(got)) != "" || strings.Contains(got, "s3kr3t")
		if shown != (m.Verbatim != "") {
			t.Errorf("%s (verbatim: %q) sends %.2000s", m.Name, m.Verbatim, got)
		}
	}
}

// answers is all that a server sends when a method answers well and then badly.
func answers(t *testing.T, r *redact.Redactor, m wire.Method) string {
	t.Helper()
	mux, calls := NewMux(), 0
	mux.add(m, route{stream: len(m.Notes) > 0, serve: func(_ context.Context, _ json.RawMessage, send func(wire.Note) error) (any, error) {
		if calls++; calls == 2 && m.Verbatim == "" {
			return nil, fault.New(fault.Denied, "no to %s", sekret).WithHint("try %s", sekret)
		}
		n := 0
		for _, kind := range m.Notes {
			note := reflect.New(kind.Type).Elem()
			fill(note, &n)
			if err := send(note.Interface().(wire.Note)); err != nil {
				return nil, err
			}
		}
		result := reflect.New(m.Result).Elem()
		fill(result, &n)
		return result.Interface(), nil
	}})
	near, far := net.Pipe()
	defer near.Close()
	se := serveConn(New(Config{Hide: r.JSON}, mux, discard()), far)
	var all bytes.Buffer
	for id := range 2 {
		go func() {
			_, _ = near.Write(mustFrame(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, m.Name)))
		}()
		for answered := false; !answered; {
			body, err := wire.ReadFrame(near)
			if err != nil || !json.Valid(body) {
				t.Fatalf("%s: %s, %v", m.Name, body, err)
			}
			all.Write(body)
			var head struct{ Result, Error json.RawMessage }
			if err := json.Unmarshal(body, &head); err != nil {
				t.Fatal(err)
			}
			answered = head.Result != nil || head.Error != nil
			if head.Result != nil { // of the type it was
				if err := json.Unmarshal(head.Result, reflect.New(m.Result).Interface()); err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
			}
		}
	}
	near.Close()
	se.wg.Wait()
	return all.String()
}

func TestAServerThatHidesNothingDoesNotStart(t *testing.T) {
	t.Parallel()
	if err := New(Config{Socket: t.TempDir() + "/run/s"}, newTestMux(), discard()).Start(t.Context()); !fault.Is(err, fault.Internal) {
		t.Errorf("%v", err)
	}
}

// Every byte leaves through conn.write: there is one place that writes to the socket,
// and one that calls it.
func TestThereIsOneWayOut(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	writes, pieces := 0, 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		src, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		writes += len(regexp.MustCompile(`\bnc\.(Write|ReadFrom)\b|io\.Copy\w*\(c\.nc|Fprint\w*\(c\.nc`).FindAll(src, -1))
		pieces += len(regexp.MustCompile(`\.writePieces\(`).FindAll(src, -1))
	}
	if writes != 1 || pieces != 1 {
		t.Errorf("%d places write to the socket, %d call them", writes, pieces)
	}
}
