package keyproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAStreamIsHandedOnAsItComes: each event is read before the next is sent.
func TestAStreamIsHandedOnAsItComes(t *testing.T) {
	t.Parallel()
	next := make(chan int)
	a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range next {
			fmt.Fprintf(w, "event: delta\ndata: {\"n\":%d,\"text\":\"s\"}\n\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	})
	b := open(t, a)
	l := lend(t, b, a, "")
	begun := make(chan *http.Response, 1)
	go func() {
		resp, err := client(t).Do(request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token)) //nolint:bodyclose // where it is read
		if err != nil {
			t.Error(err)
		}
		begun <- resp
	}()
	next <- 0
	resp := <-begun
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 10 {
		for _, want := range []string{"event: delta\n", fmt.Sprintf("data: {\"n\":%d,\"text\":\"s\"}\n", i), "\n"} {
			if got, err := lines.ReadString('\n'); got != want || err != nil {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
		}
		if i < 9 {
			next <- i + 1
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestARequestIsBoundedAndStreamed: it is handed on while it is made.
func TestARequestIsBoundedAndStreamed(t *testing.T) {
	t.Parallel()
	came := make(chan string, 1)
	a := newAPI(t, Bearer, func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, first); err == nil {
			select {
			case came <- string(first):
			default:
			}
		}
		n, _ := io.Copy(io.Discard, r.Body) // the other side ends it
		fmt.Fprint(w, n)
	})
	b := open(t, a)
	l := lend(t, b, a, "/v1")
	send := func(body io.Reader, length int64) (answer, string) {
		q := request(t, "POST", l.BaseURL+"/x", "", "Authorization", "Bearer "+l.Token)
		q.Body, q.ContentLength = io.NopCloser(body), length
		return ask(t, q)
	}
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, "hello")
		if got := <-came; got != "hello" {
			t.Errorf("%q came first", got)
		}
		_, _ = io.WriteString(pw, " world")
		_ = pw.Close()
	}()
	if resp, said := send(pr, -1); resp.StatusCode != http.StatusOK || said != "6" {
		t.Errorf("%d %s", resp.StatusCode, said)
	}
	if resp, said := send(io.LimitReader(zeros{}, maxBody), -1); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, said)
	}
	q := request(t, "POST", l.BaseURL+"/x", "", "Authorization", "Bearer "+l.Token, "Expect", "100-continue")
	q.Body, q.ContentLength = io.NopCloser(io.LimitReader(zeros{}, maxBody+1)), maxBody+1
	c := client(t)
	c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	resp, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("told to be too long: %d", resp.StatusCode)
	}
	// One that does not tell is cut off, with or without an answer.
	q = request(t, "POST", l.BaseURL+"/x", "", "Authorization", "Bearer "+l.Token)
	q.Body, q.ContentLength = io.NopCloser(io.LimitReader(zeros{}, maxBody+1<<20)), -1
	if resp, err := client(t).Do(q); err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("too long: %d", resp.StatusCode)
		}
	}
	way, _ := b.Way("run_1")
	at := way.Address
	if got, _ := raw(t, at, "GET /v1/x HTTP/1.1\r\nHost: "+at+"\r\nX-Long: "+strings.Repeat("a", 80<<10)+"\r\n\r\n"); got != 431 {
		t.Errorf("a huge head: %d", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWhatIsUnderWayEnds: by the client, by the end of its run, by that of the daemon.
func TestWhatIsUnderWayEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *Broker, l *Loan, cancel func()){
		"client": func(_ *Broker, _ *Loan, cancel func()) { cancel() },
		"run":    func(_ *Broker, l *Loan, _ func()) { l.End() },
		"daemon": func(b *Broker, _ *Loan, _ func()) { _ = b.Close(context.Background()) },
	} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprint(name, begun), func(t *testing.T) {
				t.Parallel()
				came, gone := make(chan struct{}), make(chan struct{})
				a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
					defer close(gone)
					if begun {
						w.WriteHeader(http.StatusOK)
						_ = http.NewResponseController(w).Flush()
					}
					close(came)
					<-r.Context().Done()
				})
				b := open(t, a)
				l := lend(t, b, a, "")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					resp, err := client(t).Do(request(t, "POST", l.BaseURL+"/v1/messages", "x", "X-Api-Key", l.Token).WithContext(ctx))
					if err != nil {
						return
					}
					defer resp.Body.Close()
					if _, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
						t.Error("it looks complete")
					}
				}()
				<-came
				end(b, l, cancel)
				<-gone
				<-done
			})
		}
	}
}

// BenchmarkARequest compares a short one straight to an API and by way of a broker.
func BenchmarkARequest(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	broker := New(Config{})
	defer func() { _ = broker.Close(context.Background()) }() // nothing is under way
	l, err := broker.Lend("run_1", Upstream{Base: server.URL}, key)
	if err != nil {
		b.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for name, base := range map[string]string{"straight": server.URL, "brokered": l.BaseURL} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				q, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+"/v1/messages", strings.NewReader("hello"))
				if err != nil {
					b.Fatal(err)
				}
				q.Header.Set("Authorization", "Bearer "+l.Token)
				resp, err := c.Do(q)
				if err != nil {
					b.Fatal(err)
				}
				if raw, err := io.ReadAll(resp.Body); err != nil || string(raw) != "hello" {
					b.Fatalf("%s, %v", raw, err)
				}
				resp.Body.Close()
			}
		})
	}
}
