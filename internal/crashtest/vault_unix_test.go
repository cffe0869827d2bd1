//go:build unix

package crashtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/instance"
)

// home is one directory of ombud and commands run in it, one after the other.
type home struct {
	t   *testing.T
	dir string
	in  instance.Instance
}

func newHome(t *testing.T) home {
	t.Helper()
	dir := t.TempDir()
	in, err := instance.New("", func(name string) string {
		if name == "OMBUD_HOME" {
			return dir
		}
		return ""
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return home{t, dir, in}
}

// run runs a command with a passphrase in the environment; kill is a fail point.
func (h home) run(passphrase, stdin, kill string, args ...string) (out string, code int, killed bool) {
	h.t.Helper()
	path, err := program()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = h.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal to ask in
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "OMBUD_HOME=" + h.dir, "OMBUD_LISTEN_ADDRESS=off", "OMBUD_MODELS_MAIN=builtin", "OMBUD_PASSPHRASE=" + passphrase,
		"FAILPOINT_LOG=" + filepath.Join(h.dir, "passes"), "FAILPOINT_KILL=" + kill,
	}
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		return string(text), exit.ExitCode(), ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text), 0, false
}

func (h home) must(passphrase, stdin string, args ...string) string {
	h.t.Helper()
	out, code, _ := h.run(passphrase, stdin, "", args...)
	if code != 0 {
		h.t.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// copied is this home in another place.
func (h home) copied(t *testing.T) home {
	t.Helper()
	to := newHome(t)
	if err := os.CopyFS(to.dir, os.DirFS(h.dir)); err != nil {
		t.Fatal(err)
	}
	// CopyFS gives modes as the umask leaves them.
	err := filepath.WalkDir(to.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, map[bool]os.FileMode{true: 0o700, false: 0o600}[d.IsDir()])
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// passes are the fail points since the log was last removed, as "name:n".
func (h home) passes() (out []string) {
	h.t.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, "passes"))
	if err != nil {
		h.t.Fatal(err)
	}
	seen := map[string]int{}
	for name := range strings.FieldsSeq(string(raw)) {
		seen[name]++
		out = append(out, fmt.Sprintf("%s:%d", name, seen[name]))
	}
	return out
}

// opens reports whether a passphrase, or none, opens the vault and its record holds.
func (h home) opens(passphrase string) bool {
	h.t.Helper()
	out, code, _ := h.run(passphrase, "", "", "audit", "verify")
	if code != 0 && !strings.Contains(out, "is not the one") && !strings.Contains(out, "nothing to open it was found") &&
		!strings.Contains(out, "the key of this store is not at") {
		h.t.Errorf("audit verify: exit code %d\n%s", code, out)
	}
	return code == 0
}

const (
	firstPhrase  = "the first passphrase"
	secondPhrase = "the second passphrase"
	legacy       = "a key file without a vault file"
)

// formerKey puts a key file there as it was before there were vault files.
func (h home) formerKey() {
	h.t.Helper()
	if err := h.in.MakeDirs(); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.in.KeyFile(), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// A change of the vault is cut off at every write, flush, rename and commit. Then the
// old secret opens it or the new one does, the next command settles what was left,
// and what opened goes on opening.
func TestAVaultChangeThatIsCutOffLeavesAWayIn(t *testing.T) {
	t.Parallel()
	supported(t)
	for name, c := range map[string]struct {
		before string   // the passphrase set at first, "" for a key file
		change []string // the command
		stdin  string
		after  string // the passphrase that opens then, "" for a key file
	}{
		"another key file":          {"", []string{"vault", "rotate"}, "", ""},
		"a passphrase for the file": {"", []string{"vault", "passphrase", "--stdin"}, secondPhrase + "\n", secondPhrase},
		"another passphrase":        {firstPhrase, []string{"vault", "passphrase", "--stdin"}, secondPhrase + "\n", secondPhrase},
		"the same passphrase":       {firstPhrase, []string{"vault", "rotate", "--stdin"}, firstPhrase + "\n", firstPhrase},
		"a key file for the phrase": {firstPhrase, []string{"vault", "rotate", "--to", "file"}, "", ""},
		"a passphrase by recovery":  {firstPhrase, []string{"vault", "recover", "--stdin"}, "KEY\n" + secondPhrase + "\n", secondPhrase},
		"a key file by recovery":    {firstPhrase, []string{"vault", "recover", "--to", "file", "--stdin"}, "KEY\n", ""},
		"another recovery key":      {"", []string{"vault", "recovery-key"}, "", ""},
		"a key file from before":    {legacy, []string{"vault", "rotate"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, before := newHome(t), c.before
			if before == legacy {
				before = ""
				base.formerKey()
			}
			base.must(before, "", "up", "--detach")
			base.must(before, "", "ask", "remember that the boiler code is 4711")
			base.must(before, "", "stop")
			key, _, _ := strings.Cut(base.must(before, "", "vault", "recovery-key"), "\n")
			stdin := strings.Replace(c.stdin, "KEY", key, 1)

			whole := base.copied(t)
			if err := os.Remove(filepath.Join(whole.dir, "passes")); err != nil {
				t.Fatal(err)
			}
			whole.must(before, stdin, c.change...)
			points := whole.passes()
			if !whole.opens(c.after) || !slices.ContainsFunc(points, func(p string) bool { return strings.HasPrefix(p, "vault.") }) {
				t.Fatalf("the whole change: passes %v", points)
			}
			tried := 0
			for n, point := range points {
				if n%vaultStride != len(name)%vaultStride {
					continue
				}
				h := base.copied(t)
				out, _, killed := h.run(before, stdin, point, c.change...)
				if !killed {
					t.Errorf("%s: it went on:\n%s", point, out)
					continue
				}
				tried++
				h.survives(point, before, c.after)
			}
			t.Logf("%d of %d places", tried, len(points))
		})
	}
}

func (h home) survives(point, before, after string) {
	h.t.Helper()
	way, other := before, after
	if !h.opens(way) {
		way, other = after, before
		if !h.opens(way) {
			h.t.Fatalf("%s: neither the old secret opens nor the new one", point)
		}
	}
	out := h.must(way, "", "vault", "recovery-key") // settles
	for range 2 {
		if !h.opens(way) {
			h.t.Errorf("%s: what opened it does not open it any more\n%s", point, out)
		}
	}
	if way != other && h.opens(other) && way != "" && other != "" {
		h.t.Errorf("%s: two passphrases open it", point)
	}
	for _, pattern := range []string{".vault-*", "*.next"} {
		if left, _ := filepath.Glob(filepath.Join(h.in.StateDir, pattern)); len(left) > 0 {
			h.t.Errorf("%s: left %v", point, left)
		}
	}
	if got := h.must(way, "", "ask", "what is the boiler code?"); !strings.Contains(got, "4711") {
		h.t.Errorf("%s: %s", point, got)
	}
	h.must(way, "", "stop")
}

// The first start is cut off at every place too, also one that finds a key file from
// before: there is one master in the end, the one the store was sealed with.
func TestAFirstStartThatIsCutOffMakesOneMaster(t *testing.T) {
	t.Parallel()
	supported(t)
	for _, phrase := range []string{"", firstPhrase, legacy} {
		t.Run(phrase, func(t *testing.T) {
			t.Parallel()
			fresh := func() home {
				h := newHome(t)
				if phrase == legacy {
					h.formerKey()
				}
				return h
			}
			given := strings.Replace(phrase, legacy, "", 1)
			whole := fresh()
			whole.must(given, "", "up", "--detach")
			whole.must(given, "", "stop")
			all := whole.passes()
			last := 0
			for n, p := range all {
				if strings.HasPrefix(p, "vault.") {
					last = n
				}
			}
			if last < 4 {
				t.Fatalf("passes %v", all)
			}
			for n, point := range all[:min(last+4, len(all))] { // and the commits after it
				if n%firstStride == len(phrase)%firstStride {
					fresh().survivesStart(point, given)
				}
			}
		})
	}
}

func (h home) survivesStart(point, phrase string) {
	h.t.Helper()
	if out, _, killed := h.run(phrase, "", point, "up"); !killed {
		h.t.Errorf("%s: it was not cut off\n%s", point, out)
	}
	first := ""
	for range 2 {
		h.must(phrase, "", "up", "--detach")
		_, key, _ := strings.Cut(h.must(phrase, "", "vault", "status"), "\nkey")
		key, _, _ = strings.Cut(key, "\n")
		h.must(phrase, "", "stop")
		if first == "" {
			first = key
		}
		if key != first || strings.TrimSpace(key) == "" {
			h.t.Errorf("%s: another master: %s, %s", point, first, key)
		}
	}
	if !h.opens(phrase) {
		h.t.Errorf("%s: it does not open", point)
	}
}
