//go:build unix

package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func show(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var s string
	if err := conn.QueryRow(t.Context(), sql).Scan(&s); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func TestPostgresDSNGivesDatabasesThatDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	a, b := connect(t, PostgresDSN(t)), connect(t, PostgresDSN(t))
	if _, err := a.Exec(t.Context(), "CREATE TABLE only_here (n BIGINT)"); err != nil {
		t.Fatal(err)
	}
	if got := show(t, b, "SELECT COALESCE(to_regclass('only_here')::text, 'absent')"); got != "absent" {
		t.Fatalf("a table of one database is seen in the other: %s", got)
	}
}

func TestServerIsSetUpLikeARealOne(t *testing.T) {
	t.Parallel()
	conn := connect(t, PostgresDSN(t))
	for sql, want := range map[string]string{
		"SHOW fsync":              "on",
		"SHOW synchronous_commit": "on",
		"SHOW listen_addresses":   "",
		"SHOW server_encoding":    "UTF8",
		"SHOW TimeZone":           "UTC",
		// By bytes it would be B a.
		"SELECT string_agg(s, ' ' ORDER BY s) FROM (VALUES ('B'), ('a')) AS v(s)": "a B",
	} {
		if got := show(t, conn, sql); got != want {
			t.Errorf("%s = %q, want %q", sql, got, want)
		}
	}
}

func TestDatabaseIsDroppedWithTheTestEvenWhileConnected(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("user", func(t *testing.T) {
		dsn = PostgresDSN(t)
		if _, err := pgx.Connect(context.Background(), dsn); err != nil { // left open on purpose
			t.Fatal(err)
		}
	})
	if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("the database is still there after its test")
	}
}

// childEnv makes TestServerEndsWithItsProcess the child that is killed.
const childEnv = "OMBUD_DBTEST_CHILD"

func TestServerEndsWithItsProcess(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		c, err := startCluster(os.TempDir())
		fmt.Printf("child: %v %v\n", err, dirOf(c))
		select {} // until killed
	}
	t.Parallel()
	_ = PostgresDSN(t) // skips or fails where there is no server

	child := exec.Command(os.Args[0], "-test.run=^TestServerEndsWithItsProcess$", "-test.timeout=5m")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "child: <nil> ")
	if !ok {
		t.Fatalf("child did not start a cluster: %s", line)
	}
	orphan := &cluster{dir: dir}
	if err := orphan.exec("SELECT 1"); err != nil {
		t.Fatalf("before the kill: %v", err)
	}

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed, so always an error
	waitGone(t, dir)
	if err := orphan.exec("SELECT 1"); err == nil {
		t.Fatal("the server outlives its process")
	}
}

func dirOf(c *cluster) string {
	if c == nil {
		return ""
	}
	return c.dir
}

func waitGone(t *testing.T, dir string) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	limit := time.After(30 * time.Second)
	for {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("%s is still there", dir)
		}
	}
}

func TestStartReportsTheLogOfAServerThatGivesUp(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.Chmod(bin, 0o755); err != nil { // the server's user has to get in
		t.Fatal(err)
	}
	writeScript(t, filepath.Join(bin, "initdb"), "exit 0")
	writeScript(t, filepath.Join(bin, "postgres"), "echo no room left for me >&2; exit 3")
	dir, err := os.MkdirTemp("", "ombud-pg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	c := &cluster{dir: dir}
	err = c.start(bin)
	c.stop()
	if err == nil || !strings.Contains(err.Error(), "no room left for me") {
		t.Fatalf("start = %v, want the server's own words", err)
	}
	waitGone(t, dir)
}

func writeScript(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(path); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// verdict records how absent ends a test.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper()      {}
func (v *verdict) Name() string { return "TestPretended" }
func (v *verdict) Fatalf(format string, args ...any) {
	v.said = "fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (v *verdict) Skip(args ...any) {
	v.said = "skip: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func TestAbsentServerFailsWhereItIsRequired(t *testing.T) {
	t.Parallel()
	for required, want := range map[bool]string{true: "fatal: ", false: "skip: "} {
		v := &verdict{}
		var stderr strings.Builder
		done := make(chan struct{})
		go func() {
			defer close(done)
			absent(v, &stderr, required)
		}()
		<-done
		if !strings.HasPrefix(v.said, want) || !strings.Contains(v.said, errAbsent.Error()) {
			t.Errorf("required=%v: %q, want it to begin with %q", required, v.said, want)
		}
		if !required && !strings.Contains(stderr.String(), "TestPretended NOT RUN") {
			t.Errorf("a skip is not said aloud: %q", stderr.String())
		}
	}
}

func TestMajor(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/9/bin": 9, "/usr/lib/postgresql/15/bin": 15,
		"/opt/homebrew/opt/postgresql@17/bin": 17, "/usr/lib/x/bin": 0,
	} {
		if got := major(dir); got != want {
			t.Errorf("major(%q) = %d, want %d", dir, got, want)
		}
	}
}
