package signed

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asVictim makes this binary a process that changes what is installed until it kills itself.
const asVictim = "OMBUD_TEST_SIGNED_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(asVictim); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}
