//go:build unix

package guard

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// TestNoPathReachesASensitiveFile crosses the ways to spell a path with files that
// hold secrets or are run by themselves, and with what a call would do to them.
func TestNoPathReachesASensitiveFile(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	targets := map[string]bool{ // path → also refused to be read
		".ssh/id_ed25519": true, ".env": true, "app/.env.local": true, "keys/tls.pem": true, ".aws/credentials": true, ".git-credentials": true,
		".bashrc": false, ".git/hooks/pre-commit": false, ".git/config": false, ".config/autostart/x.desktop": false, ".config/systemd/user/x.service": false,
	}
	n := 0
	for target, secret := range targets {
		whole := filepath.Join(ws, target)
		if err := os.MkdirAll(filepath.Dir(whole), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, whole, "precious")
		n++
		tag := string(rune('a' + n))
		link(t, whole, filepath.Join(ws, "abs-"+tag))
		link(t, target, filepath.Join(ws, "rel-"+tag))
		link(t, "rel-"+tag, filepath.Join(ws, "chain-"+tag))
		link(t, filepath.Dir(whole), filepath.Join(ws, "dir-"+tag))
		link(t, "/proc/self/root"+whole, filepath.Join(ws, "proc-"+tag))
		link(t, "/proc/self/cwd", filepath.Join(ws, "cwd-"+tag))
		base, dir := filepath.Base(target), filepath.Dir(target)
		for _, path := range []string{
			target, "./" + target, dir + "//" + base, dir + "/./" + base, "sub/../" + target, "missing/../" + target, whole, ws + "/sub/../" + target,
			ws + "//" + target, "/../" + whole, "abs-" + tag, "rel-" + tag, "chain-" + tag, "dir-" + tag + "/" + base, "dir-" + tag + "/../" + target,
			"proc-" + tag, "cwd-" + tag + "/" + target, "/proc/self/root" + whole, "/proc/self/cwd/" + target, "/dev/fd/3",
			strings.ToUpper(target), strings.ReplaceAll(target, "s", "ſ"), strings.ReplaceAll(target, "e", "e\u200b"), target + ".", target + " ", target + "::$DATA",
			strings.ReplaceAll(target, "/", "/./"), "~/" + target + "/../../" + target, target + "/", target + "/.",
		} {
			for doing, err := range map[string]error{
				"write":    r.Write(path, []byte("x"), ""),
				"writable": second(r.Writable(path)),
				"read":     second(read(r, path)),
				"readable": second(r.Readable(path)),
				"remove":   removeUnlessLink(r, ws, path),
			} {
				if strings.HasPrefix(doing, "read") && !secret {
					continue
				}
				if err == nil {
					t.Errorf("%s %q, which is %s: done", doing, path, target)
				}
			}
		}
		if got, err := os.ReadFile(whole); err != nil || string(got) != "precious" {
			t.Errorf("%s holds %q now, %v", target, got, err)
		}
	}
}

// removeUnlessLink removes path, but a link, whose removal touches no target.
func removeUnlessLink(r *Root, ws, path string) error {
	if info, err := os.Lstat(filepath.Join(ws, path)); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return fault.New(fault.Denied, "a link")
	}
	return r.Remove(path)
}

func TestWhatIsNoFileIsRefusedWithoutWaiting(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	if err := syscall.Mkfifo(filepath.Join(ws, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", filepath.Join(ws, "sock")); err == nil { // a long path has no socket
		t.Cleanup(func() { l.Close() })
	}
	for name, target := range map[string]string{"null": "/dev/null", "tty": "/dev/tty", "zero": "/dev/zero", "fd": "/dev/stdin", "mem": "/proc/self/mem", "to-pipe": "pipe"} {
		link(t, target, filepath.Join(ws, name))
	}
	_ = syscall.Mknod(filepath.Join(ws, "device"), syscall.S_IFCHR|0o600, 1<<8|5) // where one may: else there is none, which is refused as well
	for _, path := range []string{"pipe", "sock", "null", "tty", "zero", "fd", "mem", "to-pipe", "device", "sub", ".", "/dev/null", "/dev/stdin", "/proc/self/mem"} {
		if _, err := read(r, path); err == nil {
			t.Errorf("%s is read", path)
		}
		if err := r.Write(path, []byte("x"), ""); err == nil && path != "device" && path != "sock" {
			t.Errorf("%s is written", path)
		}
	}
}

func TestAFileWithSeveralNamesIsNotRead(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, ws, outside := setup(t, NewSensitive([]string{filepath.Join(dir, "x")}, nil))
	if err := os.Link(filepath.Join(outside, "secret"), filepath.Join(ws, "innocent.txt")); err != nil {
		t.Skip("no hard links here:", err)
	}
	if got, err := read(r, "innocent.txt"); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("%q, %v, want denied", got, err)
	}
	if err := r.Write("innocent.txt", []byte("new"), ""); err != nil { // takes the name and leaves the other file
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(got) != "outside" {
		t.Errorf("the other name holds %q, %v", got, err)
	}
	if got, err := read(r, "innocent.txt"); got != "new" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	excepted, err := OpenRoot(ws, NewSensitive([]string{ws}, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { excepted.Close() })
	if err := os.Link(filepath.Join(ws, "a.txt"), filepath.Join(ws, "b.txt")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(excepted, "b.txt"); got != "inside" || err != nil {
		t.Errorf("an exception: %q, %v", got, err)
	}
}

// TestALinkExchangedAllTheTimeNeverLeadsToASecret lets somebody exchange a harmless
// file and directory for links to sensitive ones while they are read and written.
func TestALinkExchangedAllTheTimeNeverLeadsToASecret(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	for _, d := range []string{".ssh", "plain"} {
		if err := os.Mkdir(filepath.Join(ws, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(ws, ".env"), "secret")
	put(t, filepath.Join(ws, ".ssh", "id"), "secret")
	put(t, filepath.Join(ws, "plain", "id"), "plain")
	put(t, filepath.Join(ws, "plain.txt"), "plain")
	var stop atomic.Bool
	var rounds atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		swap := func(name string, target string, back func(string) error) {
			at, next := filepath.Join(ws, name), filepath.Join(ws, name+".next")
			_ = os.Symlink(target, next) // losing a round changes nothing
			_ = os.RemoveAll(at)
			_ = os.Rename(next, at)
			_ = os.Remove(at)
			_ = back(at)
		}
		for !stop.Load() {
			swap("f", ".env", func(at string) error { return os.WriteFile(at, []byte("plain"), 0o600) })
			swap("d", ".ssh", func(at string) error {
				if err := os.Mkdir(at, 0o700); err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(at, "id"), []byte("plain"), 0o600)
			})
			rounds.Add(1)
		}
	})
	for range 1000 {
		for _, path := range []string{"f", "d/id"} {
			if got, _ := read(r, path); got == "secret" {
				t.Fatalf("%s gave a secret", path)
			}
		}
		_ = r.Write("d/new", []byte("x"), "") // refused or done: never in .ssh
		_ = r.Remove("d/id")                  // likewise
	}
	stop.Store(true)
	wg.Wait()
	entries, err := os.ReadDir(filepath.Join(ws, ".ssh"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "id" {
		t.Errorf(".ssh holds %v, %v", entries, err)
	}
	t.Logf("%d rounds", rounds.Load())
}
