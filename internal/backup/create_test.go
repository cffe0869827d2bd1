package backup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
)

func homed(t testing.TB, dir string) instance.Instance {
	t.Helper()
	in, err := instance.New("", func(name string) string {
		if name == "OMBUD_HOME" {
			return dir
		}
		return ""
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func place(t testing.TB) instance.Instance {
	t.Helper()
	in := homed(t, t.TempDir())
	if err := in.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	return in
}

func source(t testing.TB, d *db.DB, in instance.Instance) Source {
	t.Helper()
	return Source{
		DB: d, Vault: testVault(t), Instance: in.Name, Version: "test", Config: in.ConfigFile(),
		Keys:    []KeyFile{{Path: in.KeyFile(), Raw: true}, {Path: filepath.Join(in.StateDir, "vault")}},
		Private: []string{in.StateDir, in.ConfigDir}, Allowed: in.BackupDir(),
	}
}

func put(t testing.TB, d *db.DB, from, to int, value string) {
	t.Helper()
	err := d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		for i := from; i < to; i++ {
			if err := db.SetMeta(ctx, tx, fmt.Sprintf("k%06d", i), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestABackupHoldsWhatItShouldAndNothingElse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		in, dir := place(t), t.TempDir()
		put(t, d, 0, 50, "v")
		write(t, in.ConfigFile(), "turn:\n  steps: 5\n")
		write(t, in.KeyFile(), strings.Repeat("K", 32))
		path := filepath.Join(dir, "b")
		var phases []string
		o := Options{Path: path, Progress: func(p Progress) {
			if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
				phases = append(phases, p.Phase)
			}
		}}
		res, err := Create(t.Context(), source(t, d, in), o)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 || info.Size() != res.Size {
			t.Errorf("%v, %v", info, err)
		}
		if names(t, dir) != "b" || strings.Join(phases, ",") != "writing,reading back" {
			t.Errorf("files %q, phases %q", names(t, dir), phases)
		}
		raw, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(raw), strings.Repeat("K", 32)) || !strings.Contains(string(raw), "steps: 5") {
			t.Errorf("the key is in it, or the configuration is not: %v", err)
		}
		m, err := Verify(t.Context(), path, nil)
		if err != nil || m.ID != res.Manifest.ID || m.KeyIncluded || m.Store != d.Kind() {
			t.Errorf("%+v, %v", m, err)
		}

		// With the key, and the file of the vault.
		write(t, filepath.Join(in.StateDir, "vault"), "envelope")
		if _, err := Create(t.Context(), source(t, d, in), o); !fault.Is(err, fault.Conflict) {
			t.Errorf("over a file that is there: %v", err)
		}
		o.Force, o.IncludeKey = true, true
		if res, err = Create(t.Context(), source(t, d, in), o); err != nil || !res.Manifest.KeyIncluded {
			t.Fatalf("%+v, %v", res, err)
		}
		raw, err = os.ReadFile(path)
		if err != nil || !strings.Contains(string(raw), strings.Repeat("K", 32)) || !strings.Contains(string(raw), "envelope") {
			t.Errorf("the key is not in it: %v", err)
		}
		if err := os.Remove(in.KeyFile()); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(t.Context(), source(t, d, in), o); !fault.Is(err, fault.Conflict) {
			t.Errorf("a key that is no file: %v", err)
		}
		if m, err := Verify(t.Context(), path, nil); err != nil || m.ID != res.Manifest.ID {
			t.Errorf("what was there before: %+v, %v", m, err)
		}
	})
}

func TestPlacesThatAreNotForBackupsAreRefused(t *testing.T) {
	t.Parallel()
	d, in := dbtest.SQLite(t), place(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(in.StateDir, link); err != nil {
		t.Skip(err)
	}
	there := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, class := range map[string]fault.Class{
		in.StateDB():                              fault.Denied,
		filepath.Join(in.StateDir, "b"):           fault.Denied,
		filepath.Join(link, "b"):                  fault.Denied,
		in.ConfigFile():                           fault.Denied,
		filepath.Join(in.StateDir, "no", "where"): fault.Invalid,
		filepath.Join(t.TempDir(), "no", "where"): fault.Invalid,
		there: fault.Conflict,
		filepath.Join(in.StateDir, "backups", "ok"): "",
	} {
		_, err := Create(t.Context(), source(t, d, in), Options{Path: path, Force: true})
		if fault.ClassOf(err) != class || err != nil && fault.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", path, err, fault.HintOf(err))
		}
	}
}

// A backup that ends early leaves no file, and what a killed one left is removed.
func TestABackupThatEndsEarlyLeavesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		in, dir := place(t), t.TempDir()
		put(t, d, 0, 2000, strings.Repeat("v", 4000))
		old := filepath.Join(dir, ".ombud-x"+Extension+".1"+partial)
		write(t, old, "half")
		write(t, filepath.Join(dir, ".ombud-y"+Extension+".2"+partial), "being written")
		long := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(old, long, long); err != nil {
			t.Fatal(err)
		}
		for _, phase := range []string{"writing", "reading back"} {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := Create(ctx, source(t, d, in), Options{Path: filepath.Join(dir, "b"), Progress: func(p Progress) {
				if p.Phase == phase && p.Done > 0 {
					cancel()
				}
			}})
			if !fault.Is(err, fault.Cancelled) {
				t.Errorf("%s: %v", phase, err)
			}
			cancel()
			if got := names(t, dir); got != ".ombud-y"+Extension+".2"+partial {
				t.Errorf("%s: left %q", phase, got)
			}
		}
	})
}

func TestOldBackupsAreRemovedByName(t *testing.T) {
	t.Parallel()
	d, in, dir := dbtest.SQLite(t), place(t), t.TempDir()
	day := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for n := range 5 {
		if _, err := Create(t.Context(), source(t, d, in), Options{Path: NameIn(dir, "default", day.AddDate(0, 0, n)), Fast: true}); err != nil {
			t.Fatal(err)
		}
	}
	other := NameIn(dir, "default-2", day)
	if err := os.Link(NameIn(dir, "default", day), other); err != nil {
		t.Fatal(err)
	}
	foreign := NameIn(dir, "default", day.AddDate(-1, 0, 0))
	write(t, foreign, "a letter to my aunt")
	if _, err := Prune(dir, "default", 0); !fault.Is(err, fault.Usage) {
		t.Error(err)
	}
	removed, err := Prune(dir, "default", 2)
	if err != nil || len(removed) != 3 || removed[0] != NameIn(dir, "default", day) {
		t.Errorf("%q, %v", removed, err)
	}
	for _, path := range []string{other, foreign, NameIn(dir, "default", day.AddDate(0, 0, 3)), NameIn(dir, "default", day.AddDate(0, 0, 4))} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if removed, err := Prune(dir, "default", 2); err != nil || len(removed) != 0 {
		t.Errorf("%q, %v", removed, err)
	}
}

// unpack restores a backup into a fresh staging directory.
func unpack(t testing.TB, path string, in instance.Instance) error {
	t.Helper()
	m, err := Verify(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Extract(t.Context(), path, m, in.Staged(), true, nil)
}

func count(t testing.TB, dsn string) (rows int64) {
	t.Helper()
	d := dbtest.Open(t, db.Options{DSN: dsn})
	defer func() { _ = d.Close() }()
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM meta").Scan(&rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestARestoreIsCutOffAnywhere goes through the steps of a restore one by one and
// lets the next opening find each state: before the rename that decides nothing has
// changed, after it everything is in place.
func TestARestoreIsCutOffAnywhere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		dir := t.TempDir()
		put(t, d, 0, 300, strings.Repeat("v", 20_000))
		from := place(t)
		write(t, from.ConfigFile(), "turn:\n  steps: 5\n")
		write(t, from.KeyFile(), "new key")
		path := filepath.Join(dir, "b")
		if _, err := Create(t.Context(), source(t, d, from), Options{Path: path, IncludeKey: true}); err != nil {
			t.Fatal(err)
		}

		in := place(t)
		dsn := "sqlite:" + in.StateDB()
		before := dbtest.Open(t, db.Options{DSN: dsn})
		put(t, before, 0, 3, "before")
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, in.KeyFile(), "old key")
		write(t, in.HomeFile(), "home_1")
		write(t, in.StateDB()+"-wal", "") // a log that belongs to the old store only

		stage := func() {
			if err := unpack(t, path, in); err != nil {
				t.Fatal(err)
			}
		}
		stage()
		if settled, err := Settle(in); settled || err != nil {
			t.Fatalf("undecided: %v, %v", settled, err)
		}
		if n := count(t, dsn); n != 3 {
			t.Fatalf("undecided, and the store has %d rows", n)
		}
		stage()
		if err := Decide(in, Plan{Restore: "res_1", Store: "sqlite", Aside: "then"}); err != nil {
			t.Fatal(err)
		}
		// Cut off after each move: what was moved by hand here is what a kill leaves.
		aside := in.ReplacedDir("then")
		if err := os.Mkdir(aside, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(in.StateDB(), filepath.Join(aside, filepath.Base(in.StateDB()))); err != nil {
			t.Fatal(err)
		}
		p, there, err := planned(in)
		if !there || err != nil || p.Restore != "res_1" {
			t.Fatalf("%+v %v %v", p, there, err)
		}
		if err := moveAside(in, p); err != nil {
			t.Fatal(err)
		}
		write(t, in.RestoreMoved(in.ReadyDir()), "")
		if err := os.Rename(in.Ready().StateDB(), in.StateDB()); err != nil {
			t.Fatal(err)
		}
		if settled, err := Settle(in); !settled || err != nil {
			t.Fatalf("decided: %v, %v", settled, err)
		}
		if n := count(t, dsn); n != 300 {
			t.Errorf("%d rows", n)
		}
		for file, want := range map[string]string{
			in.KeyFile(): "new key", in.ConfigFile(): "turn:\n  steps: 5\n",
			filepath.Join(aside, "master.key"): "old key", filepath.Join(aside, "home"): "home_1",
		} {
			if got, err := os.ReadFile(file); string(got) != want || err != nil {
				t.Errorf("%s: %q, %v", file, got, err)
			}
		}
		if n := count(t, "sqlite:"+filepath.Join(aside, "ombud.db")); n != 3 {
			t.Errorf("what was there before has %d rows", n)
		}
		for _, gone := range []string{in.HomeFile(), in.ReadyDir(), in.StagingDir()} {
			if _, err := os.Lstat(gone); !os.IsNotExist(err) {
				t.Errorf("%s: %v", gone, err)
			}
		}
		if settled, err := Settle(in); settled || err != nil {
			t.Errorf("again: %v, %v", settled, err)
		}
	})
}

// What is decided and cannot be put in place is not told as if nothing had happened.
func TestARestoreThatCannotBeFinishedSaysThatItIsDecided(t *testing.T) {
	t.Parallel()
	in := place(t)
	for _, dir := range []string{in.Staged().StateDir, in.Staged().ConfigDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, in.Staged().KeyFile(), "key")
	if err := Decide(in, Plan{Restore: "res_1", Store: "sqlite", Aside: "then"}); err != nil {
		t.Fatal(err)
	}
	write(t, in.RestoreMoved(in.ReadyDir()), "")
	if err := os.Mkdir(in.KeyFile(), 0o700); err != nil { // it is in the way
		t.Fatal(err)
	}
	if settled, err := Settle(in); settled || !strings.Contains(fault.HintOf(err), "puts the rest in place") {
		t.Errorf("%v, %v, hint %q", settled, err, fault.HintOf(err))
	}
	if err := os.Remove(in.KeyFile()); err != nil {
		t.Fatal(err)
	}
	if settled, err := Settle(in); !settled || err != nil {
		t.Errorf("%v, %v", settled, err)
	}
}

func TestAPlanForPostgresWaitsForItsStore(t *testing.T) {
	t.Parallel()
	for restore, want := range map[string]bool{"res_1": true, "": false, "res_2": false} {
		in := place(t)
		to := in.Staged()
		for _, dir := range []string{to.StateDir, to.ConfigDir} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		write(t, to.KeyFile(), "key")
		if err := Decide(in, Plan{Restore: "res_1", Store: "postgres", Aside: "then"}); err != nil {
			t.Fatal(err)
		}
		if settled, err := Settle(in); settled || err != nil {
			t.Fatalf("before the store was asked: %v, %v", settled, err)
		}
		settled, err := SettleStore(in, restore)
		if settled != want || err != nil {
			t.Errorf("%q: %v, %v", restore, settled, err)
		}
		if _, err := os.Stat(in.KeyFile()); (err == nil) != want {
			t.Errorf("%q: the key: %v", restore, err)
		}
		if _, err := os.Stat(in.ReadyDir()); !os.IsNotExist(err) {
			t.Errorf("%q: %v", restore, err)
		}
	}
}

// A configuration that is there stays; the one of the backup is laid beside the store.
func TestAConfigurationThatIsThereStays(t *testing.T) {
	t.Parallel()
	for have, beside := range map[string]bool{"mine: 1\n": true, "theirs: 1\n": false} {
		in := place(t)
		ready := in.Ready()
		if err := os.MkdirAll(ready.ConfigDir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, ready.ConfigFile(), "theirs: 1\n")
		write(t, in.ConfigFile(), have)
		if err := installConfig(in, ready); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(in.ConfigFile()); string(got) != have || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := os.Stat(in.RestoredConfig()); (err == nil) != beside {
			t.Errorf("%q: %v", have, err)
		}
	}
}

// Members that would be written elsewhere than where they belong are damage.
func TestAMemberGoesNowhereElse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"key/../../evil", "key/home", "key/ombud.db", "key/", "key/daemon.lock"} {
		in := place(t)
		path := filepath.Join(t.TempDir(), "b")
		write(t, path, string(sample(t, Part{Name: name, Size: 10})))
		if err := unpack(t, path, in); !fault.Is(err, fault.Verification) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(in.StateDir, "evil")); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	in := place(t)
	path := filepath.Join(t.TempDir(), "b")
	write(t, path, string(sample(t, Part{Name: "later/addition", Size: 10}, Part{Name: partStore, Size: 600})))
	if err := unpack(t, path, in); err != nil {
		t.Errorf("a member of a later ombud: %v", err)
	}
	if _, _, err := Open(filepath.Join(t.TempDir(), "none")); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, _, err := Open(t.TempDir()); fault.ClassOf(err) == "" {
		t.Error("a directory is no backup")
	}
}
