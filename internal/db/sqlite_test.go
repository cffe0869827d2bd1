package db_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestEveryConnectionIsSetUpForDurability(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	for name, want := range map[string]string{
		"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1", "busy_timeout": "5000",
		"fullfsync": "1", "checkpoint_fullfsync": "1", "cell_size_check": "1",
	} {
		if got, err := d.WriterPragma(t.Context(), name); err != nil || got != want {
			t.Errorf("writer: %s = %q, want %q (%v)", name, got, want, err)
		}
		got, err := d.ReaderPragmas(t.Context(), name)
		if err != nil || len(got) != 4 {
			t.Fatalf("readers: %v, %v", got, err)
		}
		for i, v := range got {
			if v != want {
				t.Errorf("reader %d: %s = %q, want %q", i, name, v, want)
			}
		}
	}
	if got, err := d.WriterPragma(t.Context(), "temp_store"); err != nil || got != "2" {
		t.Errorf("writer: savepoints are kept in temp_store %q, want memory (%v)", got, err)
	}
	got, err := d.ReaderPragmas(t.Context(), "query_only")
	if err != nil || strings.Join(got, "") != "1111" {
		t.Errorf("readers: query_only = %v, %v", got, err)
	}
	err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "INSERT INTO meta (key, value) VALUES ('k', 'v') RETURNING key").Scan(new(string))
	})
	if err == nil || len(keys(t, d)) != 0 {
		t.Errorf("a reader could write: %v", err)
	}
}

func TestEveryPostgresConnectionWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	settings := func(ctx context.Context, q db.Q) (got string, err error) {
		err = q.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('fsync'), current_setting('synchronous_commit'),
			current_setting('statement_timeout'), current_setting('transaction_isolation'), current_setting('transaction_read_only'))`).Scan(&got)
		return got, err
	}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		got, err := settings(ctx, tx)
		if want := "on on 30s read committed off"; got != want {
			t.Errorf("writer: %q, want %q", got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		got, err := settings(ctx, q)
		if want := "on on 30s repeatable read on"; got != want {
			t.Errorf("reader: %q, want %q", got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSecondProcessOnOneDirectoryIsRefusedByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dsn, lock := "sqlite:"+filepath.Join(dir, "ombud.db"), filepath.Join(dir, "lock")
	holder := child(t, "open", dsn, lock)
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("holder: %q, %v", line, err)
	}
	o := db.Options{DSN: dsn, LockFile: lock}
	_, err = db.Open(t.Context(), o)
	want := fmt.Sprintf("(process %d)", holder.Process.Pid)
	if !fault.Is(err, fault.Running) || !strings.Contains(err.Error(), want) || fault.Exit(err) != 73 {
		t.Errorf("told %v (exit %d), want %s", err, fault.Exit(err), want)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // killed
	dbtest.Open(t, o)
}

// extra is a schema one step newer than ours.
func extra(t *testing.T, statements string) []db.Migration {
	t.Helper()
	steps, err := db.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	return append(steps, db.Migration{Version: 9001, Name: "9001_extra.sql", Text: statements})
}

func TestOlderSchemaIsBackedUpAndMigratedAndNewerRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := dbtest.Options(t, kind)
			newer := db.WithMigrations(o, extra(t, "CREATE TABLE extra (\n  id TEXT PRIMARY KEY -- plain\n) /*strict*/;\n"))
			d := dbtest.Open(t, o)
			if err := put(t.Context(), d, "old"); err != nil {
				t.Fatal(err)
			}
			_ = d.Close()

			wrong := db.WithMigrations(o, extra(t, "CREATE TABLE extra (id TEXT) /*strict*/;\nCREATE TABLE meta (id TEXT) /*strict*/;\n"))
			if _, err := db.Open(t.Context(), wrong); err == nil {
				t.Fatal("a migration that cannot work was accepted")
			}
			d = dbtest.Open(t, o) // nothing of it has stayed
			if err := put(t.Context(), d, "old2"); err != nil {
				t.Fatal(err)
			}
			_ = d.Close()

			d = dbtest.Open(t, newer)
			if got := keys(t, d); !got["old"] || !got["old2"] {
				t.Errorf("after the migration: %v", got)
			}
			_ = d.Close()
			_, err := db.Open(t.Context(), o)
			if !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), "9001") || fault.HintOf(err) == "" {
				t.Errorf("newer schema: %v", err)
			}
			if kind == dbtest.KindSQLite {
				checkBackup(t, o)
			}
		})
	}
}

func checkBackup(t *testing.T, o db.Options) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(o.BackupDir, "before-schema-*.db"))
	if err != nil || len(files) != 2 {
		t.Fatalf("backups: %v, %v", files, err)
	}
	if info, err := os.Stat(files[1]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the backup: %v, %v", info.Mode(), err)
	}
	d := dbtest.Open(t, db.Options{DSN: "sqlite:" + files[1]}) // with the schema it had
	if got := keys(t, d); !got["old"] || !got["old2"] {
		t.Errorf("in the backup: %v", got)
	}
}

func TestDamagedFileIsToldAndNotTouched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ombud.db")
	garbage := bytes.Repeat([]byte("not a database, "), 1024)
	if err := os.WriteFile(path, garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := db.Open(t.Context(), db.Options{DSN: "sqlite:" + path})
	if !fault.Is(err, fault.Verification) || fault.HintOf(err) == "" {
		t.Errorf("told %s: %v", fault.ClassOf(err), err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(after, garbage) {
		t.Errorf("the damaged file was changed (%v)", err)
	}
}

func TestDamagedPageIsToldWhenItIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ombud.db")
	o := db.Options{DSN: "sqlite:" + path}
	d := dbtest.Open(t, o)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for i := range 2000 {
			if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", fmt.Sprint(i), strings.Repeat("v", 500)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close() // folds the log into the file
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for page := range int64(40) {
		if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 4096), (200+page)*4096); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.Close()

	d = dbtest.Open(t, o)
	err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		_, err := db.All(ctx, q, db.Column[string], "SELECT value FROM meta")
		return err
	})
	if !fault.Is(err, fault.Verification) {
		t.Errorf("read: %s: %v", fault.ClassOf(err), err)
	}
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE meta SET value = value || 'x'")
		return err
	})
	if !fault.Is(err, fault.Verification) {
		t.Errorf("write: %s: %v", fault.ClassOf(err), err)
	}
}

func TestAddressThatCannotBeUsedNeverShowsItsPassword(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]fault.Class{
		"postgres://u:s3cret@127.0.0.1:1/x":                          fault.Unavailable,
		"postgresql://u@127.0.0.1:1/x?password=s3cret":               fault.Unavailable,
		"postgres://u:s3cret@127.0.0.1:port/x":                       fault.Config,
		"postgres://u:s3cret@127.0.0.1:1/x?sslmode=nonsense":         fault.Config,
		"postgres://u:s3cret@127.0.0.1:1/x?synchronous_commit=off":   fault.Config,
		"postgres:u:s3cret@127.0.0.1/x":                              fault.Config,
		"postgres://u:%zzs3cret@127.0.0.1/x":                         fault.Config,
		"host=127.0.0.1 password=s3cret user=u":                      fault.Config,
		"mysql://u:s3cret@127.0.0.1/x":                               fault.Config,
		"mysql:u:s3cret@127.0.0.1/x":                                 fault.Config,
		"u:s3cret@127.0.0.1":                                         fault.Config,
		"s3cret":                                                     fault.Config,
		"sqlite://u:s3cret@host/x":                                   fault.Config,
		"postgres://u:s3cret@127.0.0.1:1/x?connect_timeout=s3cret":   fault.Config,
		"postgres://u:s3cret@[::1/x":                                 fault.Config,
		"postgres://u:s3cret@127.0.0.1:1/x?application_name=%gg&a=b": fault.Config,
	} {
		var log bytes.Buffer
		_, err := db.Open(t.Context(), db.Options{DSN: dsn, Logger: textLog(&log)})
		if !fault.Is(err, want) {
			t.Errorf("%s: class %s, want %s: %v", dsn, fault.ClassOf(err), want, err)
		}
		if text := fmt.Sprintf("%v %+v %s %s", err, err, fault.HintOf(err), log.String()); strings.Contains(text, "s3cret") {
			t.Errorf("%s: the error shows the password: %s", dsn, text)
		}
	}
	if _, err := db.Open(t.Context(), db.Options{DSN: "sqlite:relative.db"}); !fault.Is(err, fault.Config) {
		t.Errorf("a relative path was accepted: %v", err)
	}
}

func TestPathWithUnusualCharactersIsOneFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b?c=1&d#e%20f;ü'\"")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o := db.Options{DSN: "sqlite:" + filepath.Join(dir, "x?y.db")}
	d := dbtest.Open(t, o)
	if err := put(t.Context(), d, "k"); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != "x?y.db" {
		t.Errorf("files %v, %v", files, err)
	}
}

// column is one column of one table as its migration describes it.
type column struct{ table, name, kind, class string }

var (
	createTable = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\) /\*strict\*/;`)
	columnLine  = regexp.MustCompile(`^\s*(\w+)\s+(TEXT|BIGINT|BYTEA)\b[^-]*?(?:--\s*(\w+).*)?$`)
	alterAdd    = regexp.MustCompile(`(?m)^ALTER TABLE (\w+) ADD COLUMN (\w+)\s+(TEXT|BIGINT|BYTEA)\b[^-\n]*;[ \t]*(?:--\s*(\w+).*)?$`)
	renamed     = regexp.MustCompile(`(?m)^ALTER TABLE (\w+) RENAME TO \w+;$`)
	constraint  = regexp.MustCompile(`^\s*(PRIMARY KEY|UNIQUE|CHECK|FOREIGN KEY|CONSTRAINT)\b`)
)

// columns reads the migrations' own description of the schema.
func columns(t *testing.T) map[string]column {
	t.Helper()
	steps, err := db.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]column{}
	for _, m := range steps {
		if strings.Contains(m.Text, "goose Down") {
			t.Errorf("%s: migrations only go up", m.Name)
		}
		if n := strings.Count(m.Text, "CREATE TABLE"); n != len(createTable.FindAllString(m.Text, -1)) {
			t.Errorf("%s: a table does not end with `) /*strict*/;`", m.Name)
		}
		for _, old := range renamed.FindAllStringSubmatch(m.Text, -1) { // made anew below
			maps.DeleteFunc(all, func(_ string, c column) bool { return c.table == old[1] })
		}
		for _, table := range createTable.FindAllStringSubmatch(m.Text, -1) {
			for line := range strings.Lines(table[2]) {
				line = strings.TrimRight(line, "\n")
				if code, _, _ := strings.Cut(line, "--"); strings.TrimSpace(code) == "" || constraint.MatchString(line) {
					continue
				}
				c := columnLine.FindStringSubmatch(line)
				if c == nil {
					t.Errorf("%s: cannot read the line %q", m.Name, line)
					continue
				}
				all[table[1]+"."+c[1]] = column{table[1], c[1], c[2], c[3]}
			}
		}
		for _, c := range alterAdd.FindAllStringSubmatch(m.Text, -1) {
			all[c[1]+"."+c[2]] = column{c[1], c[2], c[3], c[4]}
		}
	}
	return all
}

func TestEveryColumnSaysHowItIsKept(t *testing.T) {
	t.Parallel()
	described := columns(t)
	for name, c := range described {
		switch c.class {
		case "plain":
		case "blind", "sealed":
			if c.kind != "BYTEA" {
				t.Errorf("%s is %s and has type %s, want BYTEA", name, c.class, c.kind)
			}
		default:
			t.Errorf("%s has class %q, want plain, blind or sealed", name, c.class)
		}
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		query := `SELECT t.name || '.' || c.name, upper(c.type) FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
			WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name <> 'goose_db_version'`
		if d.Postgres() {
			query = `SELECT table_name || '.' || column_name, upper(data_type) FROM information_schema.columns
				WHERE table_schema = 'public' AND table_name <> 'goose_db_version'`
		}
		kinds := map[string]string{"INTEGER": "BIGINT", "BLOB": "BYTEA"}
		real := map[string]bool{}
		err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			rows, err := q.Query(ctx, query)
			if err != nil {
				return err
			}
			for rows.Next() {
				var name, kind string
				if err := rows.Scan(&name, &kind); err != nil {
					return err
				}
				real[name] = true
				if k, ok := kinds[kind]; ok && !d.Postgres() {
					kind = k
				}
				if want := described[name].kind; kind != want {
					t.Errorf("%s has type %s in the store and %q in its migration", name, kind, want)
				}
			}
			return rows.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		for name := range described {
			if !real[name] {
				t.Errorf("%s is in a migration and not in the store", name)
			}
		}
	})
}

func TestLogThatGrowsIsToldOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := dbtest.Options(t, dbtest.KindSQLite)
	o.Logger = textLog(&log)
	d := dbtest.Open(t, o)
	if err := d.SetWALWarning(t.Context(), 64<<10); err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		if err := put(t.Context(), d, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	s := d.Stats()
	if s.WALBytes <= 64<<10 || s.Batches < 257 || s.Callers != s.Batches || s.LastError != "" || s.Full {
		t.Errorf("statistics %+v", s)
	}
	_ = d.Close()
	if n := strings.Count(log.String(), "write-ahead log is large"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
}

func TestTimeDoesNotGoBackOverARestart(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindSQLite)
	d := dbtest.Open(t, o)
	var before int64
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		before = tx.Now()
		_, err := tx.Next(ctx, "n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	o.Now = longAgo
	err = dbtest.Open(t, o).InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if clock, err := tx.Clock(ctx); err != nil || tx.Now() < before || clock != tx.Now() {
			t.Errorf("now %d, clock %d, before the restart %d, %v", tx.Now(), clock, before, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
