package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/backup"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/hold"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

func quiet(wire.BackupProgress) error { return nil }

func storeOf(t *testing.T, kind dbtest.Kind) string {
	if kind == dbtest.KindPostgres {
		return fmt.Sprintf("store: %q\n", dbtest.PostgresDSN(t))
	}
	return ""
}

func backUp(t *testing.T, c *wire.Client, req wire.BackupCreateRequest) wire.BackupResult {
	t.Helper()
	if req.Path == "" && req.Dir == "" {
		req.Path = filepath.Join(t.TempDir(), "b")
	}
	res, err := c.BackupCreate(t.Context(), req, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// restored is a fresh instance restored from a file.
func restored(t *testing.T, file, key, more string) Options {
	t.Helper()
	o := options(t, more)
	if _, err := Restore(t.Context(), o, RestoreRequest{File: file, KeyFile: key}); err != nil {
		t.Fatal(err)
	}
	return o
}

// log is what the event log says up to a position.
func log(t *testing.T, c *wire.Client, head int64) (out []string) {
	t.Helper()
	for after := int64(0); after < head; {
		page, err := c.EventsList(t.Context(), wire.EventsListRequest{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			if after = e.Position; after <= head {
				out = append(out, fmt.Sprintf("%d %s %s %d %s %s", e.Position, e.ID, e.Stream, e.Version, e.Kind, e.Data))
			}
		}
	}
	return out
}

// TestABackupOfABusyDaemonIsItsMoment backs up while eight conversations go on and
// restores each backup into either store: the log is the one of the source up to the
// head of the backup, every run is what its events say, the record holds, and nothing
// moves until it is let go.
func TestABackupOfABusyDaemonIsItsMoment(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := options(t, storeOf(t, kind))
			c, stop := up(t, o)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						_, _ = c.MessageSend(ctx, wire.MessageSendRequest{
							Conversation: fmt.Sprint(i), Text: fmt.Sprintf("remember that fact %d of %d is %d", n, i, n*i), Wait: n%3 == 0,
						})
					}
				})
			}
			var made []wire.BackupResult
			for range 3 {
				<-time.After(100 * time.Millisecond)
				made = append(made, backUp(t, c, wire.BackupCreateRequest{}))
			}
			cancel()
			wg.Wait()
			last := made[len(made)-1].Backup.Head
			whole := log(t, c, last)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			for i, b := range made {
				for _, into := range dbtest.Kinds() {
					if i > 0 && into != kind {
						continue // crossing over once is enough
					}
					r := restored(t, b.Path, o.Instance.KeyFile(), storeOf(t, into))
					rc, rstop := up(t, r)
					looksLike(t, rc, b, whole)
					letGo(t, rc)
					if err := rstop(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

func looksLike(t *testing.T, c *wire.Client, b wire.BackupResult, whole []string) {
	t.Helper()
	s, err := c.SystemStatus(t.Context())
	if err != nil || s.Held == nil || s.Held.Backup != b.Backup.ID || s.Held.BackupAt != b.Backup.CreatedAt {
		t.Fatalf("%+v, %v", s.Held, err)
	}
	if got := log(t, c, b.Backup.Head); !slices.Equal(got, whole[:len(got)]) || int64(len(got)) != b.Backup.Head {
		t.Errorf("%d events up to %d; they are not those of the source", len(got), b.Backup.Head)
	}
	if v, err := c.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil || v.Restores != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := c.MessageSend(t.Context(), wire.MessageSendRequest{Text: "hello"}); !fault.Is(err, fault.Waiting) {
		t.Errorf("a message while it is held: %v", err)
	}
	if _, err := c.UndoRestore(t.Context(), wire.UndoRestoreRequest{ID: "chk_1"}); !fault.Is(err, fault.Waiting) {
		t.Errorf("an undo while it is held: %v", err)
	}
	if s.Runs.Running != 0 {
		t.Errorf("%+v", s.Runs)
	}
}

// letGo releases and waits until everything that was under way is done.
func letGo(t *testing.T, c *wire.Client) {
	t.Helper()
	work, err := c.RestorePending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RestoreRelease(t.Context(), wire.RestoreReleaseRequest{Restore: work.Held.Restore}); err != nil {
		t.Fatal(err)
	}
	until(t, "the work goes on", func() bool {
		s, err := c.SystemStatus(t.Context())
		return err == nil && s.Held == nil && s.Idle
	})
	if a := ask(t, c, "remember that the boiler code is 4711"); a.Outcome != "completed" {
		t.Errorf("%+v", a)
	}
	if v, err := c.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			t.Fatal(what, ": it never happened")
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestAHoldListsWhatWouldHappen restores an instance with an overdue reminder, one for
// later and work in its queue, restarts it, and lets go of some of it.
func TestAHoldListsWhatWouldHappen(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := options(t, storeOf(t, kind))
			c, stop := up(t, o)
			ask(t, c, "remind me in 1 seconds of the tea")
			ask(t, c, "remind me in 3 hours of the train")
			b := backUp(t, c, wire.BackupCreateRequest{})
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			r := restored(t, b.Path, o.Instance.KeyFile(), storeOf(t, kind))
			for range 2 { // it is held over a restart
				c, stop = up(t, r)
				until(t, "the reminder is overdue", func() bool {
					work, err := c.RestorePending(t.Context())
					return err == nil && len(work.Timers) == 1
				})
				work, err := c.RestorePending(t.Context())
				if err != nil || work.Held == nil || work.Later != 1 || !strings.Contains(work.Timers[0].Text, "tea") || len(work.Replies) != 0 || len(work.Runs) != 0 {
					t.Fatalf("%+v, %v", work, err)
				}
				checks, err := c.DoctorRun(t.Context())
				if err != nil || !slices.ContainsFunc(checks.Checks, func(k wire.Check) bool { return k.ID == "restore.held" && k.Status == "warn" }) {
					t.Errorf("doctor: %+v, %v", checks, err)
				}
				if _, err := c.RestoreRelease(t.Context(), wire.RestoreReleaseRequest{Restore: "res_other"}); !fault.Is(err, fault.Conflict) {
					t.Errorf("another restore: %v", err)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			}
			c, stop = up(t, r)
			work, err := c.RestorePending(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			res, err := c.RestoreRelease(t.Context(), wire.RestoreReleaseRequest{Restore: work.Held.Restore, SkipOverdue: true, DropReplies: true, CancelRuns: true})
			if err != nil || res.Skipped != 1 {
				t.Errorf("%+v, %v", res, err)
			}
			if _, err := c.RestoreRelease(t.Context(), wire.RestoreReleaseRequest{Restore: work.Held.Restore}); !fault.Is(err, fault.Conflict) {
				t.Errorf("again: %v", err)
			}
			if work, err := c.RestorePending(t.Context()); err != nil || work.Held != nil {
				t.Errorf("%+v, %v", work, err)
			}
			tail, err := c.AuditTail(t.Context(), wire.AuditTailRequest{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, e := range tail.Entries {
				kinds = append(kinds, e.Kind)
			}
			if !slices.Contains(kinds, "restore") || !slices.Contains(kinds, "release") {
				t.Errorf("the record has %q", kinds)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			c, _ = up(t, r)
			if s, err := c.SystemStatus(t.Context()); err != nil || s.Held != nil {
				t.Errorf("held again: %+v, %v", s.Held, err)
			}
			if a := ask(t, c, "what is the boiler code?"); a.Outcome != "completed" {
				t.Errorf("%+v", a)
			}
		})
	}
}

// A held instance keeps what it would clear away at another time, and calls no tool.
func TestAHeldInstanceForgetsNothing(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), options(t, ""), turn{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(d.closeConfine(context.Background()), d.close()); err != nil {
			t.Error(err)
		}
		d.keeper.Close()
	}()
	in := func(fn func(ctx context.Context, tx *db.Tx) error) {
		t.Helper()
		if err := d.db.InTx(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	in(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO inbound (dedupe, event, run, conversation, body_mac, at) VALUES ($1, 'e', 'r', 'c', $1, 1)", []byte("old"))
		return errors.Join(err, hold.SetTx(ctx, tx, hold.Record{Restore: "res_1"}))
	})
	if err := d.hold.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.testCall(t.Context(), wire.ToolsTestRequest{Name: "x", Tool: "y"}); !fault.Is(err, fault.Waiting) {
		t.Errorf("a test of a tool while it is held: %v", err)
	}
	for _, want := range []int64{1, 0} { // held, and let go
		if err := d.forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := d.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			var n int64
			err := q.QueryRow(ctx, "SELECT count(*) FROM inbound").Scan(&n)
			if n != want {
				t.Errorf("%d keys kept, want %d", n, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if want == 1 {
			in(func(ctx context.Context, tx *db.Tx) error { return d.hold.ReleaseTx(ctx, tx, "res_1") })
		}
	}
}

// TestARestoreInPlaceIsKnownToItsAnchors puts an anchored instance back to an older
// backup, by ombud restore and then by hand.
func TestARestoreInPlaceIsKnownToItsAnchors(t *testing.T) {
	t.Parallel()
	anchors := filepath.Join(t.TempDir(), "anchors")
	o := options(t, fmt.Sprintf("audit:\n  anchor_file: %q\n", anchors))
	c, stop := up(t, o)
	ask(t, c, "remember that the boiler code is 4711")
	b := backUp(t, c, wire.BackupCreateRequest{})
	ask(t, c, "remember that the boiler code is 4712")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), o, RestoreRequest{File: b.Path}); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("into an instance that is not empty: %v", err)
	}
	res, err := Restore(t.Context(), o, RestoreRequest{File: b.Path, Replace: true})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(t.Context(), o, RestoreRequest{File: b.Path, Replace: true})
	if err != nil || again.Replaced == res.Replaced { // at once, and what was replaced before stays
		t.Fatalf("%+v after %+v, %v", again, res, err)
	}
	c, stop = up(t, o)
	v, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{})
	if err != nil || v.Restores != 1 || v.GivenUp == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	letGo(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// By hand: what was replaced comes back.
	for _, path := range o.Instance.DatabaseFiles() {
		old, err := os.ReadFile(filepath.Join(res.Replaced, filepath.Base(path)))
		if err == nil {
			err = os.WriteFile(path, old, 0o600)
		} else {
			err = os.RemoveAll(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Run(t.Context(), o); !fault.Is(err, fault.Verification) {
		t.Errorf("a store put back by hand: %v", err)
	}
}

func TestARestoreThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, stop := up(t, o)
	ask(t, c, "remember that the boiler code is 4711")
	b := backUp(t, c, wire.BackupCreateRequest{})
	withKey := backUp(t, c, wire.BackupCreateRequest{IncludeKey: true})

	refused := func(what string, r Options, req RestoreRequest, class fault.Class) {
		t.Helper()
		_, err := Restore(t.Context(), r, req)
		if !fault.Is(err, class) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", what, err, fault.HintOf(err))
		}
		if _, err := os.Lstat(r.Instance.StagingDir()); !os.IsNotExist(err) {
			t.Errorf("%s: something is left: %v", what, err)
		}
	}
	refused("while a daemon runs", o, RestoreRequest{File: b.Path, Replace: true}, fault.Running)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	empty := options(t, "")
	refused("without the key", empty, RestoreRequest{File: b.Path}, fault.Verification)
	other := options(t, "")
	_, stop = up(t, other)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	refused("with another key", empty, RestoreRequest{File: b.Path, KeyFile: other.Instance.KeyFile()}, fault.Verification)
	raw, err := os.ReadFile(b.Path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("damaged", empty, RestoreRequest{File: damaged, KeyFile: o.Instance.KeyFile()}, fault.Verification)
	// Somebody who has the store but not its key can sign only with another one.
	forged := filepath.Join(t.TempDir(), "forged")
	d, err := openStore(t.Context(), o, storeOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := vault.New(bytes.Repeat([]byte{1}, vault.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Create(t.Context(), backup.Source{DB: d, Vault: theirs, Instance: "default"}, backup.Options{Path: forged}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	refused("signed by somebody else", empty, RestoreRequest{File: forged, KeyFile: o.Instance.KeyFile()}, fault.Verification)
	if _, err := os.Lstat(empty.Instance.StateDB()); !os.IsNotExist(err) {
		t.Errorf("a store is there: %v", err)
	}
	if _, err := Restore(t.Context(), empty, RestoreRequest{File: withKey.Path}); err != nil {
		t.Errorf("with the key in it: %v", err)
	}
	// The other one is a living store on PostgreSQL.
	pg := options(t, storeOf(t, dbtest.KindPostgres))
	_, stop = up(t, pg)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	refused("into a database that is not empty", pg, RestoreRequest{File: withKey.Path, Replace: true}, fault.Conflict)
	c, _ = up(t, pg)
	if s, err := c.SystemStatus(t.Context()); err != nil || s.Held != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// The configuration of a backup says where an instance without one is restored.
func TestAConfigurationComesWithItsBackup(t *testing.T) {
	t.Parallel()
	o := options(t, "turn:\n  steps: 7\n")
	c, stop := up(t, o)
	b := backUp(t, c, wire.BackupCreateRequest{IncludeKey: true})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	fresh := options(t, "")
	if err := os.Remove(fresh.Instance.ConfigFile()); err != nil {
		t.Fatal(err)
	}
	asked := ""
	res, err := Restore(t.Context(), fresh, RestoreRequest{File: b.Path, Load: func(path string) (*config.Loaded, error) {
		asked = path
		return config.Load(config.Input{File: path})
	}})
	if err != nil || res.Config != fresh.Instance.ConfigFile() || asked == "" {
		t.Fatalf("%+v, %v, asked for %q", res, err, asked)
	}
	text, err := os.ReadFile(fresh.Instance.ConfigFile())
	if err != nil || !strings.Contains(string(text), "steps: 7") {
		t.Errorf("%q, %v", text, err)
	}
}

func TestABackupIsVerifiedWithoutItsInstance(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := options(t, storeOf(t, kind))
			c, stop := up(t, o)
			ask(t, c, "remember that the boiler code is 4711")
			b := backUp(t, c, wire.BackupCreateRequest{})
			checks, err := c.DoctorRun(t.Context())
			if err != nil || !slices.ContainsFunc(checks.Checks, func(k wire.Check) bool { return k.ID == "backup.last" && strings.Contains(k.Detail, b.Path) }) {
				t.Errorf("doctor: %+v, %v", checks, err)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			scratch := t.TempDir()
			for who, want := range map[*Options]int{&o: 5, ptr(options(t, "")): 5} {
				got, err := VerifyBackup(t.Context(), *who, b.Path, scratch, false, quiet)
				if err != nil || len(got.Checks) != want || got.Backup.ID != b.Backup.ID {
					t.Errorf("%+v, %v", got, err)
				}
			}
			if got, err := VerifyBackup(t.Context(), o, b.Path, scratch, true, quiet); err != nil || len(got.Checks) != 2 {
				t.Errorf("quick: %+v, %v", got, err)
			}
			if left, err := os.ReadDir(scratch); err != nil || len(left) != 0 {
				t.Errorf("left %v, %v", left, err)
			}
			// The same without a daemon, by name, twice.
			dir := t.TempDir()
			for range 2 {
				res, err := Backup(t.Context(), o, wire.BackupCreateRequest{Dir: dir, Keep: 1}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := backup.Verify(t.Context(), res.Path, nil); err != nil {
					t.Error(err)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("kept %v, %v", left, err)
			}
			if _, err := Backup(t.Context(), o, wire.BackupCreateRequest{Dir: filepath.Join(dir, "none")}, quiet); !fault.Is(err, fault.Invalid) {
				t.Errorf("to nowhere: %v", err)
			}
			// Each of them is on record.
			c, _ = up(t, o)
			tail, err := c.AuditTail(t.Context(), wire.AuditTailRequest{Limit: 20})
			if err != nil {
				t.Fatal(err)
			}
			became := map[string]int{}
			for _, e := range tail.Entries {
				if e.Kind == "backup" {
					became[e.Outcome]++
				}
			}
			if became["ok"] != 3 || became["invalid"] != 1 {
				t.Errorf("the record has %v", became)
			}
			if _, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }
