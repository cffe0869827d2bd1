package dbtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Limits of the cluster. A start takes about a second on a quiet machine.
const (
	startLimit    = 60 * time.Second
	databaseLimit = 60 * time.Second
	maxConns      = 400 // many parallel tests, each with pools of its own
	superuser     = "ombud"
	maxSocketDir  = 80 // a socket path is at most 107 bytes, on macOS 103
)

// errAbsent says that this machine has no PostgreSQL server programs.
var errAbsent = errors.New("no PostgreSQL server programs found (make test installs them as root on Debian)")

// cluster is a running server that stops when alive is closed, at the latest
// with the process.
type cluster struct {
	dir   string   // everything it owns, removed by the watcher
	alive *os.File // write end of the watcher's standard input
	names atomic.Int64
}

// process is the one cluster of this test process.
var process = sync.OnceValues(func() (*cluster, error) { return startCluster(os.TempDir()) })

// PostgresDSN returns the address of a fresh, empty database that is dropped at
// the end of the test, with whatever is still connected to it.
func PostgresDSN(t testing.TB) string {
	t.Helper()
	c, err := process()
	if errors.Is(err, errAbsent) {
		absent(t, os.Stderr, os.Getenv("CI") == "true")
	}
	if err != nil {
		t.Fatalf("start a PostgreSQL cluster: %v", err)
	}
	name := fmt.Sprintf("t%d", c.names.Add(1))
	if err := c.exec("CREATE DATABASE " + name + " TEMPLATE template0"); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := c.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return c.dsn(name)
}

// absent ends a test that has no server: a machine that has to prove the whole
// must not pass by leaving half of it out.
func absent(t testing.TB, stderr io.Writer, required bool) {
	t.Helper()
	if required {
		t.Fatalf("CI=true: %v", errAbsent)
	}
	fmt.Fprintf(stderr, "\n*** %s NOT RUN on PostgreSQL: %v\n\n", t.Name(), errAbsent)
	t.Skip(errAbsent)
}

func (c *cluster) socketDir() string { return filepath.Join(c.dir, "socket") }

func (c *cluster) dsn(database string) string {
	q := url.Values{"host": {c.socketDir()}, "user": {superuser}, "sslmode": {"disable"}}
	return "postgres:///" + database + "?" + q.Encode()
}

// exec runs one statement on the maintenance database, on a connection of its
// own: a pool would be a goroutine that leak checks of other packages see.
func (c *cluster) exec(statement string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), databaseLimit,
		fmt.Errorf("no answer within %s", databaseLimit))
	defer cancel()
	conn, err := pgx.Connect(ctx, c.dsn("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// startCluster makes a cluster in a new directory under parent and waits until
// it answers.
func startCluster(parent string) (*cluster, error) {
	bin, err := serverPrograms()
	if err != nil {
		return nil, err
	}
	if len(parent) > maxSocketDir-len("/ombud-pg-1234567890/socket") {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "ombud-pg-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	if err := c.start(bin); err != nil {
		c.stop()
		return nil, errors.Join(err, os.RemoveAll(dir)) // the watcher, if it runs, does the same
	}
	return c, nil
}

func (c *cluster) start(bin string) error {
	if err := os.Mkdir(c.socketDir(), 0o700); err != nil {
		return err
	}
	if err := giveToServer(c.dir, c.socketDir()); err != nil {
		return fmt.Errorf("give %s to the server's user: %w", c.dir, err)
	}
	if err := c.initdb(bin); err != nil {
		return err
	}
	if err := c.launch(bin); err != nil {
		return err
	}
	return c.waitReady()
}

// initdb does not sync its files: a crash of the machine ends the cluster anyway.
// The server itself does (fsync is on).
func (c *cluster) initdb(bin string) error {
	cmd := exec.Command(filepath.Join(bin, "initdb"),
		"--pgdata="+filepath.Join(c.dir, "data"), "--username="+superuser, "--auth=trust", "--no-sync",
		"--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US")
	cmd.Dir = c.dir
	cmd.Env = serverEnv(c.dir)
	asServer(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// watcher runs the server (its arguments) until descriptor 3 ends, then stops it
// at once and removes the directory it stands in. The file "exited" says that the
// server ended by itself.
const watcher = `dir=$PWD
"$@" </dev/null 3<&- &
server=$!
( while read -r _; do :; done; [ -e exited ] || kill -QUIT "$server" ) <&3 &
reader=$!
exec 3<&-
wait "$server"; echo "$?" >exited
wait "$reader"
cd / && rm -rf "$dir"`

// launch starts the watcher in a session of its own, so that an interrupt typed
// at the terminal reaches the tests and leaves the clean-up to it. Its output
// goes to a file and never to ours: go test waits for everyone who holds that.
func (c *cluster) launch(bin string) error {
	ends, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ends.Close()
	log, err := os.Create(c.logFile())
	if err != nil {
		return errors.Join(err, alive.Close())
	}
	defer log.Close()

	cmd := exec.Command("/bin/sh", "-c", watcher, "ombud-pg-watcher", filepath.Join(bin, "postgres"),
		"-D", filepath.Join(c.dir, "data"), "-k", c.socketDir(), "-c", "listen_addresses=",
		"-c", "max_connections="+strconv.Itoa(maxConns), "-c", "shared_buffers=64MB",
		"-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "timezone=UTC")
	cmd.Dir = c.dir
	cmd.Env = serverEnv(c.dir)
	cmd.ExtraFiles = []*os.File{ends} // descriptor 3
	cmd.Stdout, cmd.Stderr = log, log
	asServer(cmd)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, alive.Close())
	}
	c.alive = alive
	return nil
}

func (c *cluster) logFile() string { return filepath.Join(c.dir, "log") }

// waitReady returns when the server answers, or with the end of its log when it
// has given up or does not answer in time.
func (c *cluster) waitReady() error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := c.exec("SELECT 1")
		if err == nil {
			return nil
		}
		if _, gone := os.Stat(filepath.Join(c.dir, "exited")); gone == nil {
			return fmt.Errorf("the server ended while starting:\n%s", c.logTail())
		}
		select {
		case <-again.C:
		case <-limit.C:
			return fmt.Errorf("the server did not answer within %s: %w\n%s", startLimit, err, c.logTail())
		}
	}
}

func (c *cluster) logTail() string {
	log, err := os.ReadFile(c.logFile())
	if err != nil {
		return err.Error()
	}
	const last = 2000
	return string(log[max(0, len(log)-last):])
}

// stop lets go of the server; its watcher stops it and removes its files.
func (c *cluster) stop() {
	if c.alive != nil {
		_ = c.alive.Close() // the read end may be gone already
	}
}

// serverPrograms returns the directory that holds initdb and postgres: the newest
// of the places where packages put them, else the one on the PATH.
func serverPrograms() (string, error) {
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // Red Hat
		"/opt/homebrew/opt/postgresql@*/bin", // macOS on Arm
		"/usr/local/opt/postgresql@*/bin",    // macOS on Intel
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, dirs...)
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(major(b), major(a)) })
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, filepath.Dir(path))
	}
	for _, dir := range found {
		if isFile(filepath.Join(dir, "initdb")) && isFile(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errAbsent
}

var firstNumber = regexp.MustCompile(`[0-9]+`)

// major returns the major version in a directory's name, 0 if it has none.
func major(dir string) int {
	n, _ := strconv.Atoi(firstNumber.FindString(dir)) // no digits: 0
	return n
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
