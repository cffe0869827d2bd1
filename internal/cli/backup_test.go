//go:build unix

package cli

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ombud-run/ombud/internal/wire"
)

// TestBackupScripts plays testdata/backup with the real daemon. Beside the commands of
// TestScripts there is:
//
//	flip FILE    changes a byte in the middle of it
func TestBackupScripts(t *testing.T) {
	t.Parallel()
	play(t, "backup", true, map[string]func(*testscript.TestScript, bool, []string){
		"flip": func(ts *testscript.TestScript, _ bool, args []string) {
			path := ts.MkAbs(args[0])
			raw, err := os.ReadFile(path)
			ts.Check(err)
			raw[len(raw)/2] ^= 1
			ts.Check(os.WriteFile(path, raw, 0o600))
		},
	})
}

// What would happen is told conversation by conversation, with what is in doubt.
func TestPendingWorkIsTold(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	now := time.Date(2026, 5, 2, 23, 0, 0, 0, time.UTC)
	a := &app{stdout: &b, now: func() time.Time { return now }}
	at := now.UnixMicro() - 90e6
	work := wire.PendingWork{
		Held:    &wire.Held{BackupAt: at},
		Replies: []wire.PendingReply{{Conversation: "aunt", QueuedAt: at, Text: "I come at five"}, {Conversation: "aunt", QueuedAt: at, InDoubt: true, Text: "or at six"}},
		Timers:  []wire.PendingTimer{{At: at, Text: "tea"}, {At: at, Kind: "other"}},
		Later:   2,
		Runs:    []wire.PendingRun{{ID: "run_1", Kind: "turn", Name: "main", Created: at, InDoubt: 1}},
		Asked:   1,
	}
	if err := a.show("x/1", work, func(p *page) { pendingPage(p, work) }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 replies to aunt would be sent", "I come at five", "or at six (it was being sent: it may have arrived)", "2 overdue timers would fire at once",
		"tea", "other", "2 timers would fire at their time", "1 run would go on", "in doubt: 1 step may have had an effect", "1 question for you: ombud inbox",
	} {
		if !bytes.Contains(b.Bytes(), []byte(want)) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
}
