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
	if spec := os.Getenv(asWorker); spec != "" {
		os.Exit(worker(spec))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(compiledDir()); err != nil {
			panic(err)
		}
		os.Exit(code)
	}))
}
