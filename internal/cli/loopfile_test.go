package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed"
)

func TestAFileThatIsNoLoopHasAHintThatFits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, want := range map[string]struct {
		class fault.Class
		hint  string
	}{
		filepath.Join(dir, "x.oloop"): {fault.NotFound, "ombud loop search"},
		dir:                           {fault.Usage, "ombud loop sign"},
	} {
		if _, err := readLoopFile(path); !fault.Is(err, want.class) || !strings.Contains(fault.HintOf(err), want.hint) {
			t.Errorf("%s: %v, hint %q", path, err, fault.HintOf(err))
		}
	}
}

func TestNoMoreOfALoopIsReadThanShowsThatItIsTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.oloop")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	if data, err := readFile(path, 10); err != nil || len(data) != 11 {
		t.Errorf("%d bytes: %v", len(data), err)
	}
	if _, err := readPart(path, signed.MaxPiece); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}
