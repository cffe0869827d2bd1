package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/tools/web"
)

// fetches has an agent whose role lets it fetch anything fetch these.
func fetches(t *testing.T, urls ...string) {
	t.Helper()
	var calls []string
	for _, u := range urls {
		in, err := json.Marshal(map[string]string{"url": u})
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, "{tool: web.fetch, input: "+string(in)+"}")
	}
	h := build(t, free("net.fetch"), "calls: ["+strings.Join(calls, ", ")+"]")
	h.live()
	made := h.calls("go")
	if len(made) != len(urls) {
		t.Fatalf("%d of %d calls were made", len(made), len(urls))
	}
	for i, s := range made {
		if s.State == "done" || s.Error == nil || s.Error.Class != fault.Denied && s.Error.Class != fault.Invalid {
			t.Errorf("%s: %s, %+v", urls[i], s.State, s.Error)
		}
	}
}

// TestFault01: an IPv4 address mapped into IPv6 went by the guard.
func TestFault01MappedAddress(t *testing.T) {
	t.Parallel()
	fetches(t, "http://[::ffff:169.254.169.254]/latest", "http://[::ffff:a9fe:a9fe]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]:22/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/")
}

// TestFault02: the guard's parser and the client's did not read the same host.
func TestFault02TwoParsers(t *testing.T) {
	t.Parallel()
	fetches(t, `http://169.254.169.254\@example.com/`, "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://example.com@127.0.0.1/", "http://127.0.0.1./", "http://localhost./")
}

// TestFault12: the read guard was in the file tools only, and shell.exec read past it.
func TestFault12ShellReadsPastTheGuard(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), ".ssh", "id_rsa")
	var calls []string
	for _, arg := range []string{outside, "note", ".env", "./sub/../.env", "/proc/self/environ", "key"} {
		in, err := json.Marshal(map[string][]string{"argv": {"cat", arg}})
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, "{tool: shell.exec, input: "+string(in)+"}")
	}
	h := build(t, "tools:\n  shell:\n    allow: [cat]\n"+free("shell.exec"), "calls: ["+strings.Join(calls, ", ")+"]")
	h.live()
	h.write(outside, "PRECIOUS")
	h.write(h.file(".env"), "PRECIOUS")
	for link, target := range map[string]string{"note": outside, "key": h.in.KeyFile()} {
		if err := os.Symlink(target, h.file(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range h.calls("go") {
		if s.State == "done" || strings.Contains(text(s), "PRECIOUS") || s.Error == nil || s.Error.Class != fault.Denied {
			t.Errorf("%s: %s, %s", s.Name, s.State, text(s))
		}
	}
}

// TestFault13: only the letters of a URL were checked. A name that answers with
// another address at connect got through, and looking a name up told its server
// what the name said.
func TestFault13NamesThatRebindOrTell(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(inner.Close)
	_, port, err := net.SplitHostPort(inner.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	resolver := loopbackNames(t, &asked)
	fetch := func(cfg guard.EgressConfig, url string) error {
		cfg.Resolver = resolver
		e, err := guard.NewEgress(cfg)
		if err != nil {
			t.Fatal(err)
		}
		client := guard.HTTPClient(guard.HTTPConfig{Egress: e})
		defer client.CloseIdleConnections()
		reg, inv := tool.NewRegistry(slog.New(slog.DiscardHandler))
		if err := web.New(client, "test", nil).Register(reg); err != nil {
			t.Fatal(err)
		}
		in, err := json.Marshal(map[string]string{"url": url})
		if err != nil {
			t.Fatal(err)
		}
		_, err = inv.Call(t.Context(), "web.fetch", tool.Invocation{Input: in})
		return err
	}
	if err := fetch(guard.EgressConfig{}, "http://rebinding.example.com:"+port); !fault.Is(err, fault.Denied) || asked.Load() == 0 {
		t.Errorf("a name that leads here: %v after %d questions", err, asked.Load())
	}
	before := asked.Load()
	if err := fetch(guard.EgressConfig{OnlyHosts: []string{"good.example.com"}}, "http://4711.secret.example.com:"+port); !fault.Is(err, fault.Denied) {
		t.Errorf("a host that is not listed: %v", err)
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("its name was told to a server %d times", n)
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests arrived", hits.Load())
	}
}

// loopbackNames says of every name that it is this machine.
func loopbackNames(t *testing.T, asked *atomic.Int64) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			asked.Add(1)
			q := m.Questions[0]
			m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true}, Questions: m.Questions}
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from) // a client that has gone needs none
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestFault03: any web page could start a turn through an open port. Nothing of the
// daemon listens on a network, and what a page can make a browser say is no message
// to the socket it has.
func TestFault03NoPortForWebPages(t *testing.T) {
	h := build(t, "") // not parallel: another test's server would be taken for the daemon's
	before := listening(t)
	h.live()
	if after := listening(t); after != before {
		t.Errorf("%d ports are listened on, %d before the daemon started", after, before)
	}
	status, err := h.client.SystemStatus(h.within())
	if err != nil || fmt.Sprint(status.Listeners) != fmt.Sprint([]string{h.in.Socket(), h.in.AgentSocket()}) {
		t.Errorf("it listens on %v, %v", status.Listeners, err)
	}
	for _, said := range []string{
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 70\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"message.send\",\"params\":{\"text\":\"hi\"}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"message.send\",\"params\":{\"text\":\"hi\"}}\n",
	} {
		conn, err := net.Dial("unix", h.in.Socket())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4096)
		n, _ := conn.Read(answer) // closed or answered with an error
		if strings.Contains(string(answer[:n]), "run_") {
			t.Errorf("it was taken: %s", answer[:n])
		}
		conn.Close()
	}
	if status, err = h.client.SystemStatus(h.within()); err != nil || status.Conversations != 0 {
		t.Errorf("%d conversations, %v", status.Conversations, err)
	}
}

// listening counts the TCP ports that sockets of this process listen on.
func listening(t *testing.T) (n int) {
	t.Helper()
	own := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not tell:", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			own[to] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		raw, err := os.ReadFile(table)
		if err != nil {
			continue // no IPv6 here
		}
		for _, line := range strings.Split(string(raw), "\n")[1:] {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && own["socket:["+f[9]+"]"] {
				n++
			}
		}
	}
	return n
}
