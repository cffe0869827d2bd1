package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// What stands behind the first value was passed over, and with it the keys it revokes.
func TestATrustFileIsOneValue(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		`{"registries":null,"revoked":["k"],"allow_community":false}` + "\n":   true,
		`{"registries":["k"]}{"revoked":["other"]}`:                            false,
		`{"registries":["k"]} <<<<<<< theirs`:                                  false,
		`{"registries":null,"revoked":["k"],"allow_community":false,"x":true}`: false,
	} {
		path := filepath.Join(t.TempDir(), "trust.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readTrustFile(path)
		if good != (err == nil) || !good && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
