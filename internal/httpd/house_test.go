package httpd

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/redact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// free is a port that is free.
var free = netip.MustParseAddrPort("127.0.0.1:0")

const patience = 30 * time.Second

// serve starts a server on a free port, until the test ends.
func serve(t testing.TB, c Config, d Deps, mounts map[string]http.HandlerFunc) *Server {
	t.Helper()
	if !c.Address.IsValid() {
		c.Address = free
	}
	if d.Hide == nil {
		d.Hide = redact.New()
	}
	s := New(c, d)
	for prefix, h := range mounts {
		s.Mount(prefix, h)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = s.Stop(ctx) // what was cut off is what some tests want
}

// raw sends bytes and returns the first answer.
func raw(t testing.TB, s *Server, request string) (replied, string) {
	t.Helper()
	conn := dial(t, s)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return answer(t, conn)
}

func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.State().Address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// replied is the head of an answer.
type replied struct {
	StatusCode int
	Header     http.Header
}

func answer(t testing.TB, conn net.Conn) (replied, string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return replied{res.StatusCode, res.Header}, string(body)
}

// get is a GET of a path with some head lines.
func get(path string, head ...string) string {
	lines := append([]string{"GET " + path + " HTTP/1.1"}, head...)
	if !strings.Contains(strings.Join(head, "\n"), "Host:") {
		lines = append(lines, "Host: localhost:7331")
	}
	return strings.Join(append(lines, "Connection: close", "", ""), "\r\n")
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t testing.TB) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return cert, key, pool
}

func until(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func want(t testing.TB, what string, res replied, body string, status int) {
	t.Helper()
	if res.StatusCode != status {
		t.Errorf("%s: %d %s, want %d", what, res.StatusCode, strings.TrimSpace(body), status)
	}
	if status >= 400 && !strings.HasPrefix(body, `{"error":{"class":"`) {
		t.Errorf("%s: an error is answered as %q", what, body)
	}
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.URL.Path) }
