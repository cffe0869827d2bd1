//go:build unix

package dbtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a PostgreSQL server of one test, which may be restarted.
type Server struct {
	t      testing.TB
	c      *cluster
	before []*os.File // of watchers of servers that have ended; they wait to remove the directory
}

// NewServer starts one; it is gone with the test.
func NewServer(t testing.TB) *Server {
	t.Helper()
	c, err := startCluster(os.TempDir())
	if errors.Is(err, errAbsent) {
		absent(t, os.Stderr, os.Getenv("CI") == "true")
	}
	if err != nil {
		t.Fatalf("start a PostgreSQL cluster: %v", err)
	}
	s := &Server{t: t, c: c}
	t.Cleanup(func() {
		s.c.stop()
		for _, f := range s.before {
			_ = f.Close()
		}
	})
	return s
}

// DSN is the address of its only database.
func (s *Server) DSN() string { return s.c.dsn("postgres") }

// Restart ends the server and starts it again. Fast, it breaks off what is under way
// and says so; not fast, it goes as with its machine, and recovers.
func (s *Server) Restart(fast bool) {
	s.t.Helper()
	how := syscall.SIGQUIT
	if fast {
		how = syscall.SIGINT
	}
	text, err := os.ReadFile(filepath.Join(s.c.dir, "data", "postmaster.pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err == nil {
		err = syscall.Kill(pid, how)
	}
	if err != nil {
		s.t.Fatalf("end the server: %v", err)
	}
	exited := filepath.Join(s.c.dir, "exited")
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for limit := time.After(startLimit); ; {
		_, err := os.Stat(exited)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			s.t.Fatal(err)
		}
		select {
		case <-again.C:
		case <-limit:
			s.t.Fatal("the server does not end")
		}
	}
	bin, err := serverPrograms()
	if err == nil {
		err = os.Remove(exited)
	}
	s.before = append(s.before, s.c.alive)
	if err == nil {
		err = s.c.launch(bin)
	}
	if err == nil {
		err = s.c.waitReady()
	}
	if err != nil {
		s.t.Fatalf("start the server again: %v", err)
	}
}
