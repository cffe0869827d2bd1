package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// naming is a configuration that names another store.
func naming(t *testing.T, o Options, dsn string) *config.Loaded {
	t.Helper()
	loaded, err := config.Load(config.Input{File: o.Instance.ConfigFile(), Flags: []config.Override{{Flag: "--to", Key: "store", Value: dsn}}})
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestAStoreThatCannotBeReachedIsNotSaidToBeMissing(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	if s, err := LookAtStore(t.Context(), o); err != nil || !strings.Contains(s.Problem, "not there yet") {
		t.Errorf("before the first start: %+v, %v", s, err)
	}
	file := o.Instance.StateDB()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(file), file); err != nil { // it leads to itself
		t.Skip(err)
	}
	if s, err := LookAtStore(t.Context(), o); err != nil || s.Problem == "" || strings.Contains(s.Problem, "not there yet") {
		t.Errorf("a file that leads nowhere: %+v, %v", s, err)
	}
}

func TestAStoreMovesToPostgresWithAllItKnows(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	quiet := func(string, int64) {}
	to := naming(t, o, dbtest.PostgresDSN(t))
	if _, err := MoveStore(t.Context(), o, to, false, quiet); !fault.Is(err, fault.NotFound) {
		t.Errorf("an instance without a store: %v", err)
	}
	c, stop := up(t, o)
	first := ask(t, c, "remember that the boiler code is 4711")
	if _, err := MoveStore(t.Context(), o, to, false, quiet); !fault.Is(err, fault.Running) {
		t.Errorf("while a daemon runs: %v", err)
	}
	receipt, err := c.RunsReceipt(t.Context(), wire.RunsReceiptRequest{ID: first.RunID})
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(o.Instance.StateDB())
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]bool{}
	moved, err := MoveStore(t.Context(), o, to, false, func(table string, _ int64) { tables[table] = true })
	if err != nil {
		t.Fatal(err)
	}
	if moved.Already || moved.Rows == 0 || moved.Head == 0 || len(moved.Tables) != len(tables) || !tables["events"] {
		t.Errorf("moved: %d rows, head %d, %d tables of %d", moved.Rows, moved.Head, len(moved.Tables), len(tables))
	}
	if after, err := os.ReadFile(o.Instance.StateDB()); err != nil || string(after) != string(before) {
		t.Errorf("the source has changed: %v", err)
	}
	if again, err := MoveStore(t.Context(), o, to, false, quiet); err != nil || !again.Already {
		t.Errorf("moved again: %+v, %v", again, err)
	}

	// Worked with again where it was, it is not what was moved any more.
	c, stop = up(t, o)
	_ = ask(t, c, "remember that the gate code is 9999")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if again, err := MoveStore(t.Context(), o, to, false, quiet); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "was worked with since") {
		t.Errorf("moved again after more work: %+v, %v", again, err)
	}

	o.Config = to
	if s, err := LookAtStore(t.Context(), o); err != nil || s.Problem != "" || s.Store != "postgres" || s.Active != "" || s.Head != moved.Head {
		t.Errorf("store status: %+v, %v", s, err)
	}
	c, _ = up(t, o)
	if s, err := LookAtStore(t.Context(), o); err != nil || !strings.Contains(s.Active, fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("store status: %+v, %v", s, err)
	}
	if got := ask(t, c, "what is the boiler code?"); !strings.Contains(got.Reply, "4711") {
		t.Errorf("after the move: %q", got.Reply)
	}
	again, err := c.RunsReceipt(t.Context(), wire.RunsReceiptRequest{ID: first.RunID})
	if err != nil || string(again.Receipt) != string(receipt.Receipt) {
		t.Errorf("the receipt is another: %v\n%s\n%s", err, receipt.Receipt, again.Receipt)
	}
	if v, err := c.RunsVerify(t.Context()); err != nil || len(v.Mismatches) > 0 || v.Runs < 2 {
		t.Errorf("runs verify: %+v, %v", v, err)
	}
	if _, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
		t.Errorf("audit verify: %v", err)
	}
}

func TestNoDaemonWorksWithAFileThatWasMoved(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, stop := up(t, o)
	_ = ask(t, c, "remember that the boiler code is 4711")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	quiet := func(string, int64) {}
	first, second := naming(t, o, dbtest.PostgresDSN(t)), naming(t, o, dbtest.PostgresDSN(t))
	if _, _, err := TakeBackStore(t.Context(), o); !fault.Is(err, fault.NotFound) {
		t.Errorf("take back what was not moved: %v", err)
	}
	moved, err := MoveStore(t.Context(), o, first, true, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a refusal leaves it as it was
		err := Run(t.Context(), o)
		if !fault.Is(err, fault.Config) || fault.CodeOf(fault.ClassOf(err)).Exit != 78 || !strings.Contains(err.Error(), moved.To) ||
			!strings.Contains(fault.HintOf(err), "--take-back") {
			t.Errorf("a daemon on the file that was moved: %v", err)
		}
	}
	if s, err := LookAtStore(t.Context(), o); err != nil || !strings.Contains(s.Problem, moved.To) {
		t.Errorf("store status: %+v, %v", s, err)
	}
	// The mark is no work: what was moved is the same, and can be moved elsewhere too.
	if again, err := MoveStore(t.Context(), o, first, true, quiet); err != nil || !again.Already {
		t.Errorf("moved again: %+v, %v", again, err)
	}
	if other, err := MoveStore(t.Context(), o, second, false, quiet); err != nil || other.Rows != moved.Rows {
		t.Errorf("moved elsewhere: %d rows of %d, %v", other.Rows, moved.Rows, err)
	}
	if file, from, err := TakeBackStore(t.Context(), o); err != nil || file != o.Instance.StateDB() || from != moved.To {
		t.Errorf("taken back: %q from %q, %v", file, from, err)
	}
	c, stop = up(t, o)
	if got := ask(t, c, "what is the boiler code?"); !strings.Contains(got.Reply, "4711") {
		t.Errorf("taken back: %q", got.Reply)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	o.Config = second // it does not have the mark
	c, _ = up(t, o)
	if got := ask(t, c, "what is the boiler code?"); !strings.Contains(got.Reply, "4711") {
		t.Errorf("on the database: %q", got.Reply)
	}
}
