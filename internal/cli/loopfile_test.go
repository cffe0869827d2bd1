package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestAMissingFileOfALoopHasAHintThatFits(t *testing.T) {
	t.Parallel()
	_, err := readLoopFile(filepath.Join(t.TempDir(), "x.oloop"))
	if !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "ombud loop search") {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}
