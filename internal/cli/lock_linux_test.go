package cli

import "testing"

// A busy kernel leaves an entry out now and then: measured 4 in 1,000 reads. stop
// would say that a daemon has ended which goes on.
func TestALockThatIsLeftOutOnceIsStillHeld(t *testing.T) {
	t.Parallel()
	const without, with = "1: POSIX  ADVISORY  READ 7 fe:01:99 0 EOF\n", "2: FLOCK  ADVISORY  WRITE 42 fe:01:1234 0 EOF\n"
	reads := 0
	list := func() ([]byte, error) {
		if reads++; reads < 3 {
			return []byte(without), nil
		}
		return []byte(without + with), nil
	}
	if pid, held, err := lookForHolder(1234, list); err != nil || !held || pid != "42" {
		t.Errorf("held %v by %q: %v", held, pid, err)
	}
	if pid, held, err := lookForHolder(234, list); err != nil || held {
		t.Errorf("nobody holds it, but %q does: %v", pid, err)
	}
}
