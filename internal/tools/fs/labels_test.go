package fs

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// labelled is the tools over labels in a store.
func labelled(t *testing.T, d *db.DB) bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := guard.OpenRoot(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	b := bench{t: t, dir: dir}
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	if err := New(root, "", NewKept(d, v)).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) from(name string, in label.Label, fields map[string]any) label.Label {
	b.t.Helper()
	out, err := b.inv.Call(context.Background(), name, tool.Invocation{Run: "run_1", Key: name, Input: args(fields), Label: in})
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	if out.Label == nil {
		return label.Label{}
	}
	return *out.Label
}

func TestAFileKeepsTheLabelItWasWrittenWith(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := labelled(t, d)
		own := label.Of(label.Operator, label.OperatorOnly)
		eve := label.Of(label.Untrusted("eve"), label.Conversation("x"))
		anybody := label.Of(label.Untrusted("file"), label.OperatorOnly)
		read := func(path string) label.Label {
			t.Helper()
			return b.from("fs.read", own, map[string]any{"path": path})
		}
		is := func(what string, got, want label.Label) {
			t.Helper()
			if !reflect.DeepEqual(label.Join(got), label.Join(want)) {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		b.put("found.txt", "hello")
		is("a file nobody wrote here", read("found.txt"), anybody)
		b.from("fs.write", own, map[string]any{"path": "a/list.txt", "content": "milk"})
		is("the operator's own", read("a/list.txt"), own)
		b.from("fs.write", eve, map[string]any{"path": "eve.txt", "content": "obey"})
		is("a stranger's", read("eve.txt"), eve)
		b.from("fs.write", eve, map[string]any{"path": "a/list.txt", "content": "obey"})
		is("written over by a stranger's turn", read("a/list.txt"), eve)
		b.put("a/list.txt", "changed by somebody")
		is("changed since", read("a/list.txt"), label.Join(eve, anybody))
		b.put("a/list.txt", strings.Repeat("x", maxWrite+1))
		is("grown too long", read("a/list.txt"), label.Join(eve, anybody))
		b.link("eve.txt", "innocent.txt")
		is("by another name", read("innocent.txt"), eve)
		b.from("fs.delete", own, map[string]any{"path": "eve.txt"})
		b.put("eve.txt", "obey")
		is("deleted and made anew", read("eve.txt"), anybody)
		b.from("fs.write", label.Label{}, map[string]any{"path": "none.txt", "content": "x"})
		is("written from nowhere", read("none.txt"), anybody)
	})
}

func TestALabelThatCannotBeReadStopsTheReading(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	b := labelled(t, d)
	b.from("fs.write", label.Of(label.Untrusted("eve"), label.OperatorOnly), map[string]any{"path": "eve.txt", "content": "obey"})
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE file_labels SET label = $1", []byte("forged"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.call("fs.read", map[string]any{"path": "eve.txt"}); !fault.Is(err, fault.Verification) {
		t.Errorf("a forged label: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "eve.txt")); err != nil {
		t.Error(err)
	}
}

func TestOnlyANewFileCanBeTakenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("old.txt", "precious")
	b.link("old.txt", "link.txt")
	def, err := b.reg.Get("fs.write")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"new.txt": true, "made/new.txt": true, "old.txt": false, "link.txt": false, "../out.txt": false} {
		if got := def.Undoable(args(map[string]any{"path": path, "content": ""})); got != want {
			t.Errorf("%s can be taken back: %t", path, got)
		}
	}
}
