package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon returns a client whose every connection is answered by serve, which
// gets the request and writes whole frames; returning ends the connection.
func daemon(t *testing.T, serve func(Request, io.Writer)) *Client {
	t.Helper()
	return NewClientFunc(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		done := make(chan struct{})
		t.Cleanup(func() { <-done })
		go func() {
			defer close(done)
			defer far.Close()
			body, err := ReadFrame(bufio.NewReader(far))
			if err != nil {
				return
			}
			req, perr := ParseRequest(body)
			if perr != nil {
				t.Errorf("client sent %q: %v", body, perr)
				return
			}
			serve(req, far)
		}()
		return near, nil
	})
}

func write(w io.Writer, v any) {
	if raw, ok := v.(string); ok {
		v = json.RawMessage(raw)
	}
	frame, err := EncodeFrame(v)
	if err != nil {
		panic(err)
	}
	w.Write(frame) //nolint:errcheck // the client may have gone: that is what some tests are about
}

func TestEveryClientCallSendsItsMethodAndReadsItsResult(t *testing.T) {
	t.Parallel()
	everyCall(t, Methods(), reflect.TypeFor[*Client](), func(c *Client) any { return c })
	everyCall(t, AgentMethods(), reflect.TypeFor[*AgentClient](), func(c *Client) any { return &AgentClient{c} })
}

func everyCall(t *testing.T, methods []Method, client reflect.Type, of func(*Client) any) {
	t.Helper()
	byGoName := map[string]Method{}
	for _, m := range methods {
		noun, verb, _ := strings.Cut(m.Name, ".")
		byGoName[strings.ToLower(noun+verb)] = m
	}
	for i := range client.NumMethod() {
		goName := client.Method(i).Name
		m, ok := byGoName[strings.ToLower(goName)]
		if !ok {
			t.Errorf("%s is the name of no method", goName)
			continue
		}
		want := reflect.New(m.Result)
		fill(want.Elem())
		c := daemon(t, func(req Request, w io.Writer) {
			params := reflect.New(m.Params)
			if err := DecodeStrict(req.Params, params.Interface()); err != nil || req.Method != m.Name {
				t.Errorf("%s sent %s %s: %v", goName, req.Method, req.Params, err)
			}
			for _, n := range m.Notes {
				frame, err := NoteFrame(req.ID, reflect.New(n.Type).Elem().Interface().(Note))
				if err != nil {
					t.Error(err)
				}
				w.Write(frame) //nolint:errcheck // a failure shows as a missing note
			}
			frame, err := ResultFrame(req.ID, want.Interface())
			if err != nil {
				t.Error(err)
			}
			w.Write(frame) //nolint:errcheck // a failure shows as a missing result
		})
		fn := reflect.ValueOf(of(c)).MethodByName(goName)
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		if m.Params != reflect.TypeFor[Empty]() {
			req := reflect.New(m.Params).Elem()
			fill(req)
			args = append(args, req)
		}
		notes := 0
		if m.Notes != nil {
			args = append(args, reflect.MakeFunc(fn.Type().In(fn.Type().NumIn()-1), func([]reflect.Value) []reflect.Value {
				notes++
				return []reflect.Value{reflect.Zero(reflect.TypeFor[error]())}
			}))
		}
		out := fn.Call(args)
		if !out[1].IsNil() || !reflect.DeepEqual(out[0].Interface(), want.Elem().Interface()) || notes != len(m.Notes) {
			t.Errorf("%s returned %+v, %v after %d notes", goName, out[0], out[1], notes)
		}
	}
}

func TestWatchGivesNotesInOrderAndPassesOverStrangeOnes(t *testing.T) {
	t.Parallel()
	c := daemon(t, func(req Request, w io.Writer) {
		write(w, `{"jsonrpc":"2.0","method":"turn.delta","params":{"request":1,"note":{"text":"a"}}}`)
		write(w, `{"jsonrpc":"2.0","method":"turn.of_tomorrow","params":{"request":1,"note":{"x":1}}}`)
		write(w, `{"jsonrpc":"2.0","method":"turn.delta","params":{"request":2,"note":{"text":"not mine"}}}`)
		write(w, `{"jsonrpc":"2.0","method":"turn.approval","params":{"request":1,"note":{"id":"apr_1","summary":"s","expires_at":5,"new":1}}}`)
		write(w, `{"jsonrpc":"2.0","id":1,"result":{"run_id":"run_1","reply":"ab"}}`)
	})
	var got []TurnNote
	res, err := c.TurnWatch(t.Context(), TurnWatchRequest{RunID: "run_1"}, func(n TurnNote) error {
		got = append(got, n)
		return nil
	})
	want := []TurnNote{TurnDelta{Text: "a"}, TurnApproval{ID: "apr_1", Summary: "s", ExpiresAt: 5}}
	if err != nil || res.Reply != "ab" || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, notes %+v", res, err, got)
	}
}

func TestCallbackErrorEndsTheWatch(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	ended := make(chan error, 1)
	c := daemon(t, func(req Request, w io.Writer) {
		for {
			frame, _ := NoteFrame(req.ID, Event{})
			if _, err := w.Write(frame); err != nil {
				ended <- err
				return
			}
		}
	})
	if _, err := c.EventsTail(t.Context(), EventsTailRequest{}, func(Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	<-ended
}

func TestClientTurnsAnswersBackIntoFaults(t *testing.T) {
	t.Parallel()
	c := daemon(t, func(req Request, w io.Writer) {
		w.Write(ErrorFrame(req.ID, ErrorOf(fault.New(fault.Running, "no").WithHint("wait")))) //nolint:errcheck // read below
	})
	_, err := c.RunsGet(t.Context(), RunsGetRequest{ID: "x"})
	if !fault.Is(err, fault.Running) || fault.HintOf(err) != "wait" || err.Error() != "no" {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}

func TestLostConnectionSaysWhetherItMayHaveHappened(t *testing.T) {
	t.Parallel()
	c := daemon(t, func(Request, io.Writer) {})
	if _, err := c.RunsList(t.Context(), RunsListRequest{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("repeatable: %s %v", fault.ClassOf(err), err)
	}
	if _, err := c.ApprovalsResolve(t.Context(), ApprovalsResolveRequest{}); !fault.Is(err, fault.Unknown) {
		t.Errorf("not repeatable: %s %v", fault.ClassOf(err), err)
	}
	closed := NewClientFunc(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		far.Close()
		return near, nil
	})
	if _, err := closed.ApprovalsResolve(t.Context(), ApprovalsResolveRequest{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("never sent: %s %v", fault.ClassOf(err), err)
	}
	for _, nonsense := range []string{`{"jsonrpc":"2.0","id":2,"result":{}}`, `[]`, `{"jsonrpc":"2.0","id":1}`} {
		c := daemon(t, func(_ Request, w io.Writer) { write(w, nonsense) })
		if _, err := c.SystemPing(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", nonsense, err)
		}
	}
}

func TestEndedContextEndsTheCall(t *testing.T) {
	t.Parallel()
	hang := func(_ Request, w io.Writer) { io.Copy(io.Discard, w.(io.Reader)) } //nolint:errcheck // until the client goes
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := daemon(t, hang).SystemPing(ctx); !fault.Is(err, fault.Timeout) {
		t.Errorf("timeout: %s %v", fault.ClassOf(err), err)
	}
	why, stop := context.WithCancelCause(t.Context())
	c := daemon(t, func(req Request, w io.Writer) {
		stop(fault.New(fault.Cancelled, "Ctrl-C"))
		hang(req, w)
	})
	if _, err := c.MessageSend(why, MessageSendRequest{Text: "x"}); !fault.Is(err, fault.Cancelled) || !strings.Contains(err.Error(), "Ctrl-C") {
		t.Errorf("cancelled: %s %v", fault.ClassOf(err), err)
	}
}

func TestOverLongMessageIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	c := NewClientFunc(func(context.Context) (net.Conn, error) { return nil, errors.New("dialled") })
	_, err := c.MessageSend(t.Context(), MessageSendRequest{Text: strings.Repeat("x", MaxFrame)})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestNobodyListening(t *testing.T) {
	t.Parallel()
	_, err := NewClient(filepath.Join(t.TempDir(), "none.sock")).SystemPing(t.Context())
	if !errors.Is(err, ErrNoDaemon) || !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
		t.Errorf("%s %v", fault.ClassOf(err), err)
	}
}
