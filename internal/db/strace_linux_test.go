package db_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommitIsFlushedBeforeItIsAcknowledged looks at the system calls: between
// the last write to the write-ahead log and the answer of InTx stands a flush of
// it that succeeded.
func TestCommitIsFlushedBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		missing(t, "strace is not installed (make test installs it as root on Debian)")
	}
	dir := t.TempDir()
	traced := filepath.Join(dir, "trace")
	run := child(t, "once", "sqlite:"+filepath.Join(dir, "ombud.db"), filepath.Join(dir, "lock"))
	cmd := exec.Command(strace, append([]string{"-f", "-y", "-s", "32", "-o", traced,
		"-e", "trace=write,pwrite64,pwritev,pwritev2,fsync,fdatasync"}, run.Args...)...)
	cmd.Env = run.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") || strings.Contains(string(out), "PTRACE") {
			missing(t, fmt.Sprintf("this machine does not let strace trace: %s", out))
		}
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(traced)
	if err != nil {
		t.Fatal(err)
	}
	if err := flushedBeforeAck(string(text)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// flushedBeforeAck judges a trace that has the marks MARK-RUN (the function runs)
// and MARK-ACK (InTx has returned).
func flushedBeforeAck(trace string) error {
	var running, written, flushed, flushing bool
	for line := range strings.Lines(trace) {
		_, call, _ := strings.Cut(line, " ")
		call = strings.TrimSpace(call)
		onLog := strings.Contains(call, "ombud.db-wal>")
		isFlush := strings.HasPrefix(call, "fsync(") || strings.HasPrefix(call, "fdatasync(")
		switch {
		case strings.Contains(call, "MARK-RUN"):
			running = true
		case !running:
		case strings.Contains(call, "MARK-ACK"):
			if !written {
				return errors.New("nothing was written to the log")
			}
			if !flushed {
				return errors.New("acknowledged before the log was flushed")
			}
			return nil
		case onLog && isFlush:
			flushed = strings.HasSuffix(call, "= 0") && written
			flushing = strings.Contains(call, "<unfinished") && written
		case onLog:
			written, flushed, flushing = true, false, false
		case flushing && strings.Contains(call, "sync resumed"):
			flushed = strings.HasSuffix(call, "= 0")
		}
	}
	return errors.New("the trace has no acknowledgement")
}

func TestJudgeOfTracesSeesAMissingFlush(t *testing.T) {
	t.Parallel()
	const run, write, flush, ack = "1 write(1</p>, \"MARK-RUN\\n\", 9) = 9\n", "1 pwrite64(5</d/ombud.db-wal>, \"x\", 4096, 0) = 4096\n",
		"1 fsync(5</d/ombud.db-wal>) = 0\n", "1 write(1</p>, \"MARK-ACK\\n\", 9) = 9\n"
	for trace, good := range map[string]bool{
		run + write + flush + ack: true,
		run + write + "1 fdatasync(5</d/ombud.db-wal> <unfinished ...>\n1 <... fdatasync resumed>) = 0\n" + ack: true,
		run + write + "1 fsync(5</d/ombud.db-wal> <unfinished ...>\n" + ack:                                     false,
		run + write + ack:                 false,
		run + flush + write + ack:         false,
		run + flush + ack:                 false,
		run + write + flush:               false,
		run + write + flush + write + ack: false,
		run + write + strings.ReplaceAll(flush, "= 0", "= -1 EIO") + ack:          false,
		run + write + strings.ReplaceAll(flush, "ombud.db-wal", "ombud.db") + ack: false,
		write + flush + run + ack: false,
	} {
		if err := flushedBeforeAck(trace); (err == nil) != good {
			t.Errorf("judged %v:\n%s", err, trace)
		}
	}
}

// missing ends a test that cannot run here: loudly, and as a failure where
// everything has to be proved.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI=true: %s", why)
	}
	fmt.Fprintf(os.Stderr, "\n*** %s NOT RUN: %s\n\n", t.Name(), why)
	t.Skip(why)
}
