package db_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// The environment of a child process: what it does, and on which store.
const (
	childEnv     = "OMBUD_DB_TEST_CHILD"
	childDSN     = "OMBUD_DB_TEST_DSN"
	childLock    = "OMBUD_DB_TEST_LOCK"
	childReserve = "OMBUD_DB_TEST_RESERVE"
	childName    = "OMBUD_DB_TEST_NAME"
)

func runChild(name string) int {
	ctx := context.Background()
	if name == "contend" {
		fmt.Println("ended:", contend(ctx, os.Getenv(childDSN), os.Getenv(childName)))
		return 1
	}
	d, err := db.Open(ctx, db.Options{DSN: os.Getenv(childDSN), LockFile: os.Getenv(childLock), ReserveFile: os.Getenv(childReserve)})
	if err != nil {
		fmt.Printf("open: %s: %v\n", fault.ClassOf(err), err)
		return 1
	}
	switch name {
	case "open": // holds the store until its input ends
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "write": // writes until it is killed
		writeForEver(ctx, d)
	case "once": // makes one commit between two marks, for strace
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := os.Stdout.WriteString("MARK-RUN\n")
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", "once", strings.Repeat("v", 1024))
			return err
		}); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("MARK-ACK")
	}
	if err := d.Close(); err != nil {
		return 1
	}
	return 0
}

// writeForEver prints the key of every row once it is acknowledged.
func writeForEver(ctx context.Context, d *db.DB) {
	var mu sync.Mutex
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for {
				var n int64
				err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
					if n, err = tx.Next(ctx, "acks"); err != nil {
						return err
					}
					_, err = tx.Exec(ctx, "INSERT INTO leases (name, owner, fence, expires) VALUES ($1, $2, $3, 0)", fmt.Sprint(n), strings.Repeat("x", 700), n)
					return err
				})
				mu.Lock()
				if err != nil {
					fmt.Println("error:", err)
				} else {
					fmt.Println("ack", n)
				}
				mu.Unlock()
			}
		})
	}
	writers.Wait()
}

// child starts this test binary as another process on a store.
func child(t *testing.T, name, dsn, lock string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+name, childDSN+"="+dsn, childLock+"="+lock)
	return cmd
}

func TestNothingAcknowledgedIsLostByKill(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn, lock := dbtest.DSN(t, kind), filepath.Join(t.TempDir(), "lock")
			acks := map[string]bool{}
			for round := range 20 {
				more := writeUntilKilled(t, dsn, lock)
				for _, n := range more {
					if acks[n] {
						t.Fatalf("round %d: number %s was given twice", round, n)
					}
					acks[n] = true
				}
				checkAcks(t, dsn, lock, acks)
			}
			t.Logf("%d acknowledged", len(acks))
			if len(acks) < 20 {
				t.Errorf("only %d rows were acknowledged in all rounds: nothing was tried", len(acks))
			}
		})
	}
}

// writeUntilKilled lets a child write and kills it a random time after its first
// acknowledgement. It returns what was acknowledged.
func writeUntilKilled(t *testing.T, dsn, lock string) (acks []string) {
	t.Helper()
	cmd := child(t, "write", dsn, lock)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, ok := strings.CutPrefix(lines.Text(), "ack ")
		if !ok {
			t.Fatalf("child: %s", lines.Text())
		}
		if len(acks) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(40_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
		acks = append(acks, n)
	}
	_ = cmd.Wait() // killed, so always an error
	return acks
}

func checkAcks(t *testing.T, dsn, lock string, acks map[string]bool) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DSN: dsn, LockFile: lock})
	if err != nil {
		t.Fatalf("open after a kill: %v", err)
	}
	defer func() { _ = d.Close() }()
	var names []string
	var head int64
	err = d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
		if !d.Postgres() {
			var verdict string
			if err := q.QueryRow(ctx, "SELECT integrity_check FROM pragma_integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
				return fmt.Errorf("integrity check: %s, %w", verdict, err)
			}
		}
		if err := q.QueryRow(ctx, "SELECT value FROM heads WHERE name = 'acks'").Scan(&head); err != nil {
			return err
		}
		names, err = db.All(ctx, q, db.Column[string], "SELECT name FROM leases ORDER BY fence")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for i, name := range names {
		there[name] = true
		if name != fmt.Sprint(i+1) {
			t.Fatalf("row %d has number %s: the counter has a gap", i+1, name)
		}
	}
	if head != int64(len(names)) {
		t.Errorf("counter %d, rows %d", head, len(names))
	}
	for n := range acks {
		if !there[n] {
			t.Errorf("number %s was acknowledged and is lost", n)
		}
	}
}
