package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestDialogues plays testdata/*.txtar: what is sent over standard input and what is
// received, once everything has come to rest. "send" has a message a line; "eof" ends the
// input; "decide" is a person who approves; "later" lets time go by.
func TestDialogues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			play(t, file)
		})
	}
}

// output is what was written and not taken yet.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

func play(t *testing.T, file string) {
	t.Helper()
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := false
	synctest.Test(t, func(t *testing.T) {
		in, toIn := io.Pipe()
		var out output
		door := newCounter()
		done := make(chan error, 1)
		go func() {
			done <- Serve(t.Context(), New(door, Config{Version: "v0", Instructions: "be kind", Patience: 44 * time.Second}), in, &out)
		}()
		for i, f := range ar.Files {
			switch f.Name {
			case "send":
				if _, err := toIn.Write(f.Data); err != nil {
					t.Fatal(err)
				}
			case "eof":
				if err := toIn.Close(); err != nil {
					t.Fatal(err)
				}
			case "decide":
				door.decide()
			case "later":
				d, err := time.ParseDuration(strings.TrimSpace(string(f.Data)))
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(d)
			case "recv":
				got := out.take()
				if string(f.Data) != got {
					if !*update {
						t.Errorf("%s, part %d: received\n%s\nwant\n%s", file, i, got, f.Data)
					}
					ar.Files[i].Data, changed = []byte(got), true
				}
			default:
				t.Fatalf("%s: what is %q?", file, f.Name)
			}
			synctest.Wait()
		}
		_ = toIn.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if changed && *update {
		if err := os.WriteFile(file, txtar.Format(ar), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatWasAskedBeforeTheEndIsAnswered(t *testing.T) {
	t.Parallel()
	door := newCounter()
	var out bytes.Buffer
	in := strings.NewReader(hello + "\n" + ready + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"test_echo"}}`)
	if err := Serve(t.Context(), New(door, Config{}), in, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"status":"ok"`) {
		t.Errorf("%q", lines)
	}
}

func TestTheEndOfInputEndsACallThatTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, toIn := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- Serve(t.Context(), New(newCounter(), Config{}), in, io.Discard) }()
		for _, line := range []string{hello, ready, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}`} {
			if _, err := io.WriteString(toIn, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		_ = toIn.Close()
		if err := <-done; err != nil || time.Since(began) > grace+time.Second {
			t.Errorf("it ended after %s: %v", time.Since(began), err)
		}
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	in, toIn := io.Pipe()
	defer toIn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, New(newCounter(), Config{}), in, io.Discard) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReadLine(t *testing.T) {
	t.Parallel()
	const most = 10
	long := strings.Repeat("x", 100_000)
	r := bufio.NewReaderSize(strings.NewReader("one\n\n0123456789\n"+long+"\ntwo\r\n01234567890\nlast"), 16)
	var got []string
	for {
		text, err := readLine(r, most)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			text = []byte(err.Error())
		}
		got = append(got, strings.TrimSpace(string(text)))
	}
	if s := strings.Join(got, "|"); s != "one||0123456789|the message is too long|two|the message is too long|last" {
		t.Error(s)
	}
}

// Whatever is sent, all that is received are messages of one line, and it ends.
func FuzzServe(f *testing.F) {
	for _, s := range []string{
		hello + "\n" + ready + "\n", "junk\n{}\n[]\nnull\n", `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, "\xff\n\x00", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		if strings.Contains(sent, "ask") || strings.Contains(sent, "wait") || strings.Contains(sent, `\u`) || strings.Contains(sent, "subscriptions") {
			t.Skip("these wait")
		}
		var out bytes.Buffer
		_ = Serve(t.Context(), New(newCounter(), Config{}), strings.NewReader(sent), &out) // it may be told to end
		for line := range strings.Lines(out.String()) {
			if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
				t.Errorf("%q", line)
			}
		}
	})
}
