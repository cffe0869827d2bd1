package httpd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A daemon that a command starts behind itself is run as /proc/self/exe, and another one
// that finds its port taken has to know it as ombud.
func TestAProcessStartedAsSelfHasTheNameOfItsFile(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperThatWaits$")
	cmd.Env = append(os.Environ(), waits+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("it did not start: %v", err)
	}
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := nameOf(cmd.Process.Pid); got != filepath.Base(file) {
		t.Errorf("it is called %q, want %q", got, filepath.Base(file))
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := nameOf(cmd.Process.Pid); got != "" {
		t.Errorf("one that is gone is called %q", got)
	}
}

const waits = "OMBUD_TEST_HTTPD_WAITS"

// TestHelperThatWaits is the other process: it says that it runs, and ends with its input.
func TestHelperThatWaits(t *testing.T) {
	if os.Getenv(waits) == "" {
		t.Skip("it is for another test")
	}
	if _, err := os.Stdout.WriteString("."); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // it ends when the other side closes it
}
