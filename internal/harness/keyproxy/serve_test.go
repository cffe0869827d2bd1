package keyproxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// raw writes a request as it stands and returns the status and the rest of the answer.
func raw(t *testing.T, address, text string) (status int, said string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // a server may hang up on what is wrong
	return resp.StatusCode, string(body)
}

// TestNoRequestLeadsElsewhere: whatever its target, it goes to the one API below the one
// path, or nowhere.
func TestNoRequestLeadsElsewhere(t *testing.T) {
	t.Parallel()
	a := newAPI(t, XAPIKey, nil)
	b := open(t, a)
	l := lend(t, b, a, "/v1")
	way, _ := b.Way("run_1")
	at := way.Address
	for target, want := range map[string]int{
		"/v1/ok":                                200,
		"/v1":                                   200,
		"/v2/admin":                             404,
		"/":                                     404,
		"/v1/../v2/admin":                       404,
		"/v1/%2e%2e/v2":                         404,
		"/v1/%2E./v2":                           404,
		"/v1/%252e%252e/v2":                     404,
		"/v1//v2":                               404,
		"//v2.example/v1/":                      404,
		"/v1/..%2fv2":                           404,
		`/v1/..\v2`:                             404,
		"/v1/%5c..%5cv2":                        404,
		"http://" + at + "/v1/ok":               400,
		"http://api.example/v1/ok":              400,
		"https://" + a.host() + "/v1/ok":        400,
		"http://user:x@" + at + "/v1/ok":        400,
		"*":                                     404,
		"/v1/ok#frag":                           404,
		"/v1/ok?key=" + key + "&api_key=" + key: 401, // not the token's
	} {
		method := "GET"
		if target == "*" {
			method = "OPTIONS"
		}
		got, said := raw(t, at, method+" "+target+" HTTP/1.1\r\nHost: "+at+"\r\nX-Api-Key: "+l.Token+"\r\nConnection: close\r\n\r\n")
		if got != want {
			t.Errorf("%s: %d %s", target, got, said)
		}
	}
	for host, want := range map[string]int{"api.example": 421, a.host(): 421, "localhost:" + at[strings.LastIndex(at, ":")+1:]: 421, at: 200} {
		if got, said := raw(t, at, "GET /v1/ok HTTP/1.1\r\nHost: "+host+"\r\nX-Api-Key: "+l.Token+"\r\nConnection: close\r\n\r\n"); got != want {
			t.Errorf("host %s: %d %s", host, got, said)
		}
	}
	if got, _ := raw(t, at, "CONNECT "+a.host()+" HTTP/1.1\r\nHost: "+a.host()+"\r\nX-Api-Key: "+l.Token+"\r\n\r\n"); got != 400 {
		t.Errorf("CONNECT: %d", got)
	}
	// Two lengths, or a length and chunks, could be two requests to whoever reads them otherwise.
	for _, framing := range []string{"Content-Length: 3\r\nContent-Length: 40\r\n", "Transfer-Encoding: chunked, identity\r\nContent-Length: 3\r\n"} {
		if got, said := raw(t, at, "POST /v1/ok HTTP/1.1\r\nHost: "+at+"\r\nX-Api-Key: "+l.Token+"\r\n"+framing+"\r\nabc"); got < 400 {
			t.Errorf("%q: %d %s", framing, got, said)
		}
	}
	for _, q := range a.requests() {
		if q.URL.Path != "/v1/ok" && q.URL.Path != "/v1" {
			t.Errorf("the API was asked for %s", q.URL)
		}
	}
}

// TestNobodyKeepsAConnectionByHalfARequest: there are only so many, and the runs need them.
func TestNobodyKeepsAConnectionByHalfARequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, XAPIKey, nil)
	b := open(t, a)
	b.patience = 50 * time.Millisecond
	l := lend(t, b, a, "/v1")
	for token, want := range map[string]int{"of-nobody": 401, l.Token: 400} {
		for _, framing := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
			if got, said := raw(t, b.Address(), "POST /v1/ok HTTP/1.1\r\nHost: "+b.Address()+"\r\nX-Api-Key: "+token+"\r\n"+framing); got != want {
				t.Errorf("%q: %d %s", framing, got, said)
			}
		}
	}
}

// TestAnAnswerMayTakeLongerThanARequest: a model thinks, and nothing more is to come from
// the program.
func TestAnAnswerMayTakeLongerThanARequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing is not told below
		late := time.NewTimer(300 * time.Millisecond)
		defer late.Stop()
		select {
		case <-late.C:
			_, _ = w.Write(body)
		case <-r.Context().Done():
		}
	})
	b := open(t, a)
	b.patience = 50 * time.Millisecond
	l := lend(t, b, a, "")
	resp, said := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token))
	if resp.StatusCode != http.StatusOK || said != "hello" {
		t.Errorf("%d %s", resp.StatusCode, said)
	}
}

func TestARedirectIsNotFollowedNorHandedOn(t *testing.T) {
	t.Parallel()
	elsewhere := newAPI(t, XAPIKey, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		a := newAPI(t, XAPIKey, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere.URL+"/?"+r.Header.Get("X-Api-Key"))
			w.WriteHeader(status)
		})
		b := open(t, a, elsewhere)
		l := lend(t, b, a, "")
		resp, said := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token))
		if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Location") != "" || !strings.Contains(said, "base_url") || strings.Contains(said, key) {
			t.Errorf("%d: %d %v %s", status, resp.StatusCode, resp.Header, said)
		}
	}
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("it was followed %d times", n)
	}
}

// TestTheKeyIsTakenOutOfAnswers: an API, or what stands before it, may repeat what it was
// asked with.
func TestTheKeyIsTakenOutOfAnswers(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len("no: "+key)))
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "no: "+r.Header.Get("X-Api-Key"))
		},
		"a header": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Debug", "key="+r.Header.Get("X-Api-Key"))
			w.Header().Set("Set-Cookie", "key="+r.Header.Get("X-Api-Key"))
		},
		"a header before the last": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", key)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.WriteHeader(http.StatusOK)
		},
		"a trailer": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "ok")
			w.Header().Set(http.TrailerPrefix+"X-Debug", key)
		},
		"another spelling": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte("Bearer "+key)), " ", url.QueryEscape(key))
		},
		"pieces": func(w http.ResponseWriter, r *http.Request) {
			for _, c := range []byte("data: " + key + "\n\n") {
				_, _ = w.Write([]byte{c})
				_ = http.NewResponseController(w).Flush()
			}
		},
		"an error that is packed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(http.StatusInternalServerError)
			z := gzip.NewWriter(w)
			fmt.Fprint(z, key)
			_ = z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, XAPIKey, reply)
			b := open(t, a)
			l := lend(t, b, a, "")
			resp, said := ask(t, request(t, "POST", l.BaseURL+"/v1/messages", "hello", "X-Api-Key", l.Token, "Accept-Encoding", "gzip"))
			var all bytes.Buffer
			fmt.Fprintf(&all, "%d %v %v %s", resp.StatusCode, resp.Header, resp.Trailer, said)
			if resp.Header.Get("Content-Encoding") == "gzip" {
				t.Errorf("nobody looked into %v", resp.Header)
			}
			for _, spelling := range []string{key, base64.StdEncoding.EncodeToString([]byte(key))[:24], "c2stcmVhbC0w"} {
				if strings.Contains(all.String(), spelling) {
					t.Errorf("the key is in %s", all.String())
				}
			}
			if got := a.requests()[0].Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("it is asked for %q", got)
			}
		})
	}
}
