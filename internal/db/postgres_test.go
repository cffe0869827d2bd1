package db_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// cut is what the proxy does to the next COMMIT it sees.
type cut int32

const (
	none           cut = iota
	beforeServer       // the server never gets it
	afterServer        // the server answers, the client does not hear it
	whileForwarded     // forwarded and cut at once: nobody knows who won
	beforeLate         // the server gets it when the test lets it pass
)

// proxy stands between the driver and the server and cuts connections.
type proxy struct {
	server string
	next   atomic.Int32 // a cut
	batch  atomic.Int32 // a cut of a batch that holds its own COMMIT: at its first message or behind its last
	refuse atomic.Bool  // new connections
	pooler atomic.Bool  // clients are told a number of a process that is none of the server's
	pass   chan struct{}
	did    chan struct{}
	conns  sync.WaitGroup
}

// newProxy returns the proxy and the address that leads through it.
func newProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	p := &proxy{server: filepath.Join(q.Get("host"), ".s.PGSQL.5432"), did: make(chan struct{}, 8), pass: make(chan struct{})}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	p.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if p.refuse.Load() {
				_ = c.Close()
				continue
			}
			p.conns.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.conns.Wait() })
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return p, u.String()
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var silent atomic.Bool
	answered := make(chan struct{}, 1)
	p.conns.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if silent.Load() && n > 0 {
				answered <- struct{}{}
				return
			}
			if i := bytes.Index(buf[:n], []byte{'K', 0, 0, 0, 12}); i >= 0 && p.pooler.Load() {
				binary.BigEndian.PutUint32(buf[i+5:], 1<<30)
			}
			if err == nil {
				_, err = client.Write(buf[:n])
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	})
	in := bufio.NewReader(client)
	for first := true; ; first = false {
		m, err := message(in, first)
		if err != nil {
			return
		}
		how := none
		if !first && m[0] == 'Q' && bytes.HasSuffix(m, []byte("COMMIT\x00")) {
			how = cut(p.next.Swap(int32(none)))
		}
		if m[0] == 'B' && cut(p.batch.Load()) == beforeServer || m[0] == 'S' && !first {
			how = max(how, cut(p.batch.Swap(int32(none))))
		}
		if silent.Store(how == beforeLate); how == beforeLate {
			_ = client.Close()
			p.did <- struct{}{}
			<-p.pass
			_, _ = server.Write(m)
			<-answered
			return
		}
		silent.Store(how == afterServer || m[0] == 'B' && cut(p.batch.Load()) == afterServer)
		if how != beforeServer {
			if _, err := server.Write(m); err != nil {
				return
			}
		}
		if how == afterServer {
			<-answered
		}
		if how != none {
			p.did <- struct{}{}
			return
		}
	}
}

// message reads one message of the client; the first has no type byte.
func message(in *bufio.Reader, first bool) ([]byte, error) {
	head := make([]byte, 5)
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	m := make([]byte, len(head)+int(binary.BigEndian.Uint32(head[len(head)-4:]))-4)
	copy(m, head)
	_, err := io.ReadFull(in, m[len(head):])
	return m, err
}

// put writes one row.
func put(ctx context.Context, d *db.DB, key string) error {
	return d.InTx(ctx, insert(key))
}

// keys returns the keys that are stored.
func keys(t *testing.T, d *db.DB) map[string]bool {
	t.Helper()
	var list []string
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
		list, err = db.All(ctx, q, db.Column[string], "SELECT key FROM meta")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, k := range list {
		set[k] = true
	}
	return set
}

func TestConnectionCutWhileCommittingIsSettledByTheServersWord(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	direct := dbtest.Open(t, o)
	var p *proxy
	p, o.DSN = newProxy(t, o.DSN)
	d := dbtest.Open(t, o)
	for i := range 24 {
		how := cut(i%3 + 1)
		p.next.Store(int32(how))
		var callers sync.WaitGroup
		for n := range 3 {
			callers.Go(func() {
				key := fmt.Sprintf("%d-%d", i, n)
				err := put(t.Context(), d, key)
				there := keys(t, direct)[key]
				switch {
				case err == nil && !there:
					t.Errorf("%s (cut %d): told stored, and is not", key, how)
				case err != nil && there:
					t.Errorf("%s (cut %d): told %v, and is stored", key, how, err)
				case err != nil && !fault.Is(err, fault.Unavailable):
					t.Errorf("%s (cut %d): class %s of %v", key, how, fault.ClassOf(err), err)
				}
			})
		}
		callers.Wait()
		select {
		case <-p.did:
		default:
			t.Errorf("round %d: the proxy saw no COMMIT", i)
		}
	}
	all := keys(t, direct)
	for n := range 1 { // a single caller: exactly what each cut must give
		for how, want := range map[cut]bool{beforeServer: false, afterServer: true} {
			p.next.Store(int32(how))
			key := fmt.Sprintf("alone-%d-%d", how, n)
			if err := put(t.Context(), d, key); (err == nil) != want {
				t.Errorf("%s: %v", key, err)
			}
			<-p.did
		}
	}
	t.Logf("%d of 72 stored", len(all))
}

// A commit that is still on its way when the connection breaks is waited for, also where
// what is between answers with a number of a process of its own, as a pooler does.
func TestACommitThatIsStillOnItsWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	var p *proxy
	p, o.DSN = newProxy(t, o.DSN)
	p.pooler.Store(true)
	n := sit(t, o, db.SeatOptions{Name: "a"})
	for _, key := range []string{"late", "late on the next connection"} {
		p.next.Store(int32(beforeLate))
		told := make(chan error, 1)
		go func() { told <- put(context.Background(), n.d, key) }()
		<-p.did
		select {
		case err := <-told:
			t.Errorf("%s: told %v before the server had it", key, err)
			told <- nil
		case <-time.After(300 * time.Millisecond):
		}
		p.pass <- struct{}{}
		if err := <-told; err != nil || !keys(t, n.d)[key] {
			t.Errorf("%s: told %v, stored: %v", key, err, keys(t, n.d)[key])
		}
	}
}

func TestLostCommitThatNobodyCanSettleIsUnknown(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	var p *proxy
	p, o.DSN = newProxy(t, o.DSN)
	d := dbtest.Open(t, o)
	p.refuse.Store(true)
	p.next.Store(int32(afterServer))
	told := make(chan error, 1)
	go func() { told <- put(context.Background(), d, "k") }()
	<-p.did
	if err := d.Close(); err != nil { // gives up asking
		t.Error(err)
	}
	if err := <-told; !fault.Is(err, fault.Unknown) {
		t.Errorf("told %v, want unknown", err)
	}
}

// A load whose commit was not answered may be there, and says so; the caller has what
// belongs to the rows in its hands and must not throw it away.
func TestALoadWhoseCommitIsNotAnsweredIsUnknown(t *testing.T) {
	t.Parallel()
	newest, err := db.NewestSchema()
	if err != nil {
		t.Fatal(err)
	}
	for how, there := range map[cut]int64{beforeServer: 0, afterServer: 1} {
		o := dbtest.Options(t, dbtest.KindPostgres)
		o.LockFile = ""
		through := o
		var p *proxy
		p, through.DSN = newProxy(t, o.DSN)
		err := db.Load(t.Context(), through, newest, func(ctx context.Context, l *db.Loader) error {
			p.next.Store(int32(how)) // those of the migrations are over
			return l.Rows(ctx, db.Table{Name: "meta", Columns: []string{"key", "value"}}, [][]any{{"k", "v"}})
		})
		<-p.did
		if !fault.Is(err, fault.Unknown) {
			t.Errorf("cut %d: told %v, want unknown", how, err)
		}
		if got := int64(len(keys(t, dbtest.Open(t, o)))); got != there {
			t.Errorf("cut %d: %d rows", how, got)
		}
	}
}

// together makes the functions of n callers share a batch: the first is held
// until the others wait.
func together(t *testing.T, d *db.DB, n int, fn func(ctx context.Context, tx *db.Tx, i int) error) []error {
	t.Helper()
	started, release := make(chan struct{}), make(chan struct{})
	held := make(chan error, 1)
	go func() {
		held <- d.InTx(context.Background(), func(context.Context, *db.Tx) error {
			close(started)
			<-release
			return nil
		})
	}()
	<-started
	errs := make([]error, n)
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			errs[i] = d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error { return fn(ctx, tx, i) })
		})
	}
	d.AwaitWaiting(n)
	close(release)
	callers.Wait()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	return errs
}

func TestCallersRunAgainWhenTheServerEndsTheirConnection(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			o := dbtest.Options(t, dbtest.KindPostgres)
			d := dbtest.Open(t, o)
			killer, err := pgx.Connect(t.Context(), o.DSN)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = killer.Close(context.Background()) }()
			var once sync.Once
			errs := together(t, d, n, func(ctx context.Context, tx *db.Tx, i int) error {
				_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", fmt.Sprint(i), "v")
				if err != nil || i != n/2 {
					return err
				}
				once.Do(func() {
					var pid int
					if pid, err = tx.BackendPID(ctx); err == nil {
						_, err = killer.Exec(ctx, "SELECT pg_terminate_backend($1, 5000)", pid)
					}
				})
				if err != nil {
					return err
				}
				_, err = tx.Next(ctx, "after")
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("callers were told: %v", err)
			}
			if got := keys(t, d); len(got) != n {
				t.Errorf("%d rows, want %d", len(got), n)
			}
			if d.Stats().LastError == "" {
				t.Error("the lost connection is not in the statistics")
			}
		})
	}
}

func TestCallersRunAgainWhenAnotherSessionIsInTheirWay(t *testing.T) {
	t.Parallel()
	for code, n := range map[string]int{"40001": 1, "40P01": 8} {
		o := dbtest.Options(t, dbtest.KindPostgres)
		d := dbtest.Open(t, o)
		var tries atomic.Int32
		errs := together(t, d, n, func(ctx context.Context, tx *db.Tx, i int) error {
			if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", fmt.Sprint(i), "v"); err != nil {
				return err
			}
			if i != n/2 || tries.Add(1) > 2 {
				return nil
			}
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '"+code+"'; END $$")
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: callers were told: %v", code, err)
		}
		if got := keys(t, d); len(got) != n {
			t.Errorf("%s: %d rows, want %d", code, len(got), n)
		}
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { // not for ever
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'always' USING ERRCODE = '"+code+"'; END $$")
			return err
		}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: told %v", code, err)
		}
	}
}

func TestServerThatIsAwayIsToldToAllAtOnce(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	var p *proxy
	p, o.DSN = newProxy(t, o.DSN)
	d := dbtest.Open(t, o)
	p.refuse.Store(true)
	p.next.Store(int32(beforeServer))
	if err := put(t.Context(), d, "warm"); err == nil { // also throws the connection away
		t.Fatal("stored without a server")
	}
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			if err := put(t.Context(), d, fmt.Sprint(i)); !fault.Is(err, fault.Unavailable) {
				t.Errorf("told %v, want unavailable", err)
			}
		})
	}
	callers.Wait()
	p.refuse.Store(false)
	if err := put(t.Context(), d, "back"); err != nil {
		t.Errorf("after the server came back: %v", err)
	}
	if got := keys(t, d); len(got) != 1 || !got["back"] {
		t.Errorf("stored %v", got)
	}
}

func TestReadsGoOnWhenTheServerEndedTheirConnections(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	d := dbtest.Open(t, o)
	_ = keys(t, d)
	killer, err := pgx.Connect(t.Context(), o.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = killer.Close(context.Background()) }()
	if _, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	_ = keys(t, d) // fails the test on an error
	if err := put(t.Context(), d, "k"); err != nil {
		t.Error(err)
	}
}

func TestProcessesThatOpenAFreshDatabaseAtOnceMigrateItOnce(t *testing.T) {
	t.Parallel()
	dsn := dbtest.DSN(t, dbtest.KindPostgres)
	var opened sync.WaitGroup
	for range 4 {
		cmd := child(t, "open", dsn, "")
		opened.Go(func() {
			out, err := cmd.CombinedOutput() // its input is empty, so it closes at once
			if err != nil || strings.TrimSpace(string(out)) != "ready" {
				t.Errorf("child: %v: %s", err, out)
			}
		})
	}
	opened.Wait()
	d := dbtest.Open(t, db.Options{DSN: dsn})
	var heads int
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM heads WHERE name = 'log'").Scan(&heads)
	})
	if err != nil || heads != 1 {
		t.Errorf("%d heads of the log, %v", heads, err)
	}
}

func TestNodesHandOutOneCounterInCommitOrder(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	nodes := []*db.DB{dbtest.Open(t, o), dbtest.Open(t, o), dbtest.Open(t, o)}
	w := &world{name: "shared", d: nodes[0]}
	done, followed := make(chan struct{}), make(chan error, 1)
	go func() { followed <- w.follow(context.Background(), done) }()
	var callers sync.WaitGroup
	for i := range 24 {
		callers.Go(func() {
			for n := range 10 {
				err := nodes[i%3].InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					if err := w.write(ctx, tx, fmt.Sprintf("%d-%d", i, n)); err != nil {
						return err
					}
					if n%4 == 3 {
						return errBoom
					}
					return nil
				})
				if (n%4 == 3) != errors.Is(err, errBoom) {
					t.Errorf("caller %d-%d: %v", i, n, err)
				}
			}
		})
	}
	callers.Wait()
	close(done)
	if err := <-followed; err != nil {
		t.Errorf("reader: %v", err)
	}
}

func TestNotificationReachesTheWatchersOfAnotherNode(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a, b := dbtest.Open(t, o), dbtest.Open(t, o)
	woken, stop := b.Watch("topic")
	defer stop()
	long := strings.Repeat("x", 9000) // no room for it: left to polling, and no error
	err := a.InTx(t.Context(), func(_ context.Context, tx *db.Tx) error {
		tx.Notify(long)
		tx.Notify("topic")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-woken // the limit of the test run ends a wait for ever
}

func TestCommitThatTheServerAnswersWithRollbackIsAnError(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('k', 'v')")
		tx.Abort()
		return err
	})
	if !fault.Is(err, fault.Unavailable) || len(keys(t, d)) != 0 {
		t.Errorf("told %v", err)
	}
	if err := put(t.Context(), d, "after"); err != nil {
		t.Error(err)
	}
}

func TestNodesThatOpenAFreshDatabaseAtOnceDoNotCollide(t *testing.T) {
	t.Parallel()
	for range 3 {
		o := db.Options{DSN: dbtest.DSN(t, dbtest.KindPostgres), Readers: 1}
		start := make(chan struct{})
		var opened sync.WaitGroup
		for range 8 {
			opened.Go(func() {
				<-start
				d, err := db.Open(t.Context(), o)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				_ = d.Close()
			})
		}
		close(start)
		opened.Wait()
	}
}
