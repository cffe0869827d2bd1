package confine

import (
	"bufio"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestADoubleForkedChildStaysAJobAndIsBuried(t *testing.T) {
	stop, err := Adopt(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	fifo := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CONFINE_ROLE=grandparent", "CONFINE_FIFO="+fifo)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := Wait(cmd); err != nil {
		t.Fatal(err)
	}
	if job, err := IsJob(orphan); err != nil || !job {
		t.Errorf("the orphan is a job: %v, %v", job, err)
	}
	if job, err := IsJob(os.Getppid()); err != nil || job {
		t.Errorf("our parent is a job: %v, %v", job, err)
	}
	let, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := let.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat("/proc/" + strconv.Itoa(orphan)); os.IsNotExist(err) {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the orphan was not buried")
		}
	}
	if _, err := IsJob(orphan); err == nil {
		t.Error("a process that is gone was judged")
	}
}

func TestTheReaperLeavesOurOwnToTheirWaiter(t *testing.T) {
	stop, err := Adopt(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 50 {
		cmd := exec.Command("/bin/sh", "-c", "exit 3")
		if err := Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := bury(); err != nil {
			t.Fatal(err)
		}
		if err := Wait(cmd); err == nil || cmd.ProcessState.ExitCode() != 3 {
			t.Fatalf("exit status was taken: %v", err)
		}
	}
}
