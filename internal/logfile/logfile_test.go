package logfile

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a log and a logger that writes to it.
func open(t *testing.T) (string, *os.File, *slog.Logger) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ombud.log")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return path, f, slog.New(Handler(f, slog.LevelDebug))
}

func messages(t *testing.T, path string, req wire.LogsTailRequest) string {
	t.Helper()
	var out []string
	if err := Read(t.Context(), path, req, func(l wire.LogLine) error {
		out = append(out, l.Level+" "+l.Message)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "; ")
}

func TestReadGivesTheLastLinesOfALevel(t *testing.T) {
	t.Parallel()
	path, f, log := open(t)
	log.Debug("a")
	log.Info("b")
	log.Warn("c", "run_id", "run_1")
	f.WriteString("panic: oh\x00 no\n") //nolint:errcheck // read below
	log.Info("d")
	f.WriteString(`{"time":"2026-`) //nolint:errcheck // a line that is being written
	for _, tc := range []struct {
		req  wire.LogsTailRequest
		want string
	}{
		{wire.LogsTailRequest{}, "info b; warn c; error panic: oh\x00 no; info d"},
		{wire.LogsTailRequest{Lines: 2}, "error panic: oh\x00 no; info d"},
		{wire.LogsTailRequest{Level: "warn"}, "warn c; error panic: oh\x00 no"},
		{wire.LogsTailRequest{Level: "debug", Lines: 5}, "debug a; info b; warn c; error panic: oh\x00 no; info d"},
	} {
		if got := messages(t, path, tc.req); got != tc.want {
			t.Errorf("%+v: %q", tc.req, got)
		}
	}
	if err := Read(t.Context(), path, wire.LogsTailRequest{Level: "loud"}, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if got := messages(t, path+".none", wire.LogsTailRequest{}); got != "" {
		t.Errorf("a missing file has %q", got)
	}
}

func TestALineWithoutATimeHasThatOfTheOneBefore(t *testing.T) {
	t.Parallel()
	path, f, log := open(t)
	log.Info("a")
	f.WriteString("goroutine 1 [running]:\n") //nolint:errcheck // read below
	var at []int64
	if err := Read(t.Context(), path, wire.LogsTailRequest{}, func(l wire.LogLine) error {
		at = append(at, l.At)
		return nil
	}); err != nil || len(at) != 2 || at[0] == 0 || at[0] != at[1] {
		t.Errorf("%v, %v", at, err)
	}
}

func TestFollowerSeesNewLinesAndANewFile(t *testing.T) {
	t.Parallel()
	path, f, log := open(t)
	log.Info("a")
	ctx, stop := context.WithCancel(t.Context())
	var got []string
	err := Read(ctx, path, wire.LogsTailRequest{Follow: true}, func(l wire.LogLine) error {
		got = append(got, l.Message)
		switch l.Message {
		case "a":
			log.Info("b")
		case "b":
			f.Close()
			if err := os.Rename(path, path+".1"); err != nil {
				return err
			}
			next, err := Open(path)
			if err != nil {
				return err
			}
			t.Cleanup(func() { next.Close() })
			slog.New(Handler(next, slog.LevelInfo)).Info("c")
		case "c":
			stop()
		}
		return nil
	})
	if err != nil || strings.Join(got, "") != "abc" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestALongLogIsMovedAsideAtTheNextStart(t *testing.T) {
	t.Parallel()
	path, f, log := open(t)
	log.Info("old")
	if err := f.Truncate(maxSize + 1); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if info, err := again.Stat(); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != maxSize+1 {
		t.Errorf("%v %v", info, err)
	}
}

// FuzzParse: any line becomes a line, as text that JSON can carry.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"m","a":1}`))
	f.Add([]byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO+2","msg":"m"}`))
	f.Add([]byte(`{"level":"INFO","msg":"m"}`))
	f.Add([]byte("panic: \xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line, _ := Parse(raw)
		if line.Level == "" || !utf8.ValidString(line.Message) {
			t.Errorf("%q: %+v", raw, line)
		}
	})
}
