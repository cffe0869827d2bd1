package daemon

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/ombud-run/ombud/internal/delegate"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestAPatchIsShownWithEveryByte: a patch is piped into git apply, and need not be UTF-8.
func TestAPatchIsShownWithEveryByte(t *testing.T) {
	t.Parallel()
	for _, patch := range []string{"+caf\xe9\n", "+café\n", ""} {
		var out, read wire.DelegateShowResult
		showKept(&out, delegate.Kept{Patch: patch})
		raw, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		got := read.Patch
		if read.PatchBase64 != "" {
			whole, err := base64.StdEncoding.DecodeString(read.PatchBase64)
			if err != nil {
				t.Fatal(err)
			}
			got = string(whole)
		}
		if got != patch {
			t.Errorf("%q is shown as %q", patch, got)
		}
	}
}
